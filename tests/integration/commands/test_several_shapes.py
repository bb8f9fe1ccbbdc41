"""Several input shapes: one package with a plan for each, by command and from Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import collage as product
from collage.runtime.package import load_package
from collage_core.errors import FeedError, InputShapeError, UsageError
from tests.integration.commands.conftest import BOTH, TINY, TINY_ARGUMENTS, Collage, check
from tests.integration.commands.environments import Environment
from tests.integration.commands.models import cnn, reference
from tests.valid_json import valid

pytestmark = pytest.mark.plugins

BATCHES = (1, 4)
SHAPES = "x:[1|4,3,16,16]"


def written(folder: Path) -> Path:
    """The CNN with a free batch dimension."""
    model = cnn()
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        value.shape = ir.Shape(["batch", *list(value.shape)[1:]])
    path = folder / "cnn.onnx"
    ir.save(model, path)
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, collage: Collage) -> Path:
    """A folder with the model, its package, and what the command said."""
    folder = tmp_path_factory.mktemp("shapes")
    model = written(folder)
    arguments = ["optimize", model, "-o", "cnn.collage", "--toolchains", BOTH, "--input-shapes", SHAPES]
    done = collage(*arguments, "--json", "shapes.json", *TINY_ARGUMENTS, folder=folder)
    assert done.returncode == 0, done.stderr
    (folder / "said.txt").write_text(done.stdout)
    (folder / "progress.txt").write_text(done.stderr)
    return folder


def x_of(batch: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(batch).standard_normal((batch, 3, 16, 16), np.float32)


def test_the_command_makes_one_package_that_runs_all_shapes(made: Path) -> None:
    session = product.load(made / "cnn.collage")

    names = [output.name for output in session.get_outputs()]
    for batch in BATCHES:
        feeds = {"x": x_of(batch)}
        outputs = dict(zip(names, session.run(None, feeds), strict=True))
        check(outputs, reference(made / "cnn.onnx", feeds))
    with pytest.raises(FeedError, match=r"no plan for x:\[3,3,16,16\], only for x:\[1,3,16,16\]"):
        session.run(None, {"x": x_of(3)})


def test_it_says_what_each_shape_gets(made: Path) -> None:
    said = (made / "said.txt").read_text()
    document = valid("plan", (made / "shapes.json").read_text())

    assert [f"x:[{batch},3,16,16]" in said for batch in BATCHES] == [True] * 2
    assert "shapes 2 of 2: x:[4,3,16,16]" in (made / "progress.txt").read_text()
    assert [each["model"]["input_shapes"] for each in document["shapes"]] == [
        {"x": [batch, 3, 16, 16]} for batch in BATCHES
    ]
    assert all(each["search"]["measured"] > 0 and each["regions"] for each in document["shapes"])


def test_no_plan_has_threads_that_keep_the_cores_of_the_others_busy(made: Path, collage: Collage) -> None:
    document = json.loads((made / "shapes.json").read_text())

    for each in document["shapes"]:
        assert {contender["name"] for contender in each["comparison"]["contenders"]} >= {"onnxruntime", "openvino"}
        assert "onnxruntime(spin=true)" not in {contender["name"] for contender in each["comparison"]["contenders"]}
    said = " ".join(collage("explain", "cnn.collage", folder=made).stdout.split())
    assert said.count("left out: onnxruntime(spin=true), which would slow the plans for other shapes") == 2


def test_weights_are_in_the_package_once(made: Path) -> None:
    package = load_package(made / "cnn.collage")

    floats = sum(np.prod(t.dims) for t in onnx.load(made / "cnn.onnx").graph.initializer if t.data_type == 1)
    stored = [each for each in package.manifest.weights.values() if each.dtype == "FLOAT" and len(each.shape) > 1]
    assert len(package.plans) == 2
    assert sum(each.nbytes for each in stored) <= 4 * floats


@pytest.mark.slow
def test_the_same_again_keeps_the_package(made: Path, collage: Collage) -> None:
    arguments = ["optimize", made / "cnn.onnx", "-o", "cnn.collage", "--toolchains", BOTH, "--input-shapes", SHAPES]

    done = collage(*arguments, *TINY_ARGUMENTS, folder=made)
    anew = collage(*arguments, "--anew", "-o", "again.collage", "--json", "-", *TINY_ARGUMENTS, folder=made)

    assert done.returncode == 0, done.stderr
    assert "nothing has changed (--anew does it again): kept cnn.collage" in " ".join(done.stdout.split())
    assert anew.returncode == 0, anew.stderr
    assert [each["search"]["measured"] for each in json.loads(anew.stdout)["shapes"]] == [0, 0]


@pytest.mark.slow
def test_other_commands_take_a_shape_or_all(made: Path, collage: Collage) -> None:
    explained = collage("explain", "cnn.collage", folder=made)
    ran = collage("run", "cnn.collage", "--verify", folder=made)
    compared = collage("compare", "cnn.onnx", "cnn.collage", "--input-shapes", "x:[4,3,16,16]", folder=made)
    which = collage("compare", "cnn.onnx", "cnn.collage", folder=made)
    timed = collage(
        *("bench", "cnn.onnx", "cnn.collage", "--input-shapes", "x:[4,3,16,16]", "--toolchains", "onnxruntime"),
        *("--rounds", "2", "--duration", "0.01", "--json", "bench.json"),
        folder=made,
    )

    assert explained.returncode == 0, explained.stderr
    assert explained.stdout.count("x:[4,3,16,16]") >= 2
    assert ran.returncode == 0, ran.stderr
    assert compared.returncode == 0, compared.stderr
    assert which.returncode == 2
    assert "choose one with --input-shapes" in " ".join(which.stderr.split())
    assert timed.returncode == 0, timed.stderr
    contenders = {
        each["name"]: each for each in json.loads((made / "bench.json").read_text())["comparison"]["contenders"]
    }
    assert contenders["collage"]["latency_ms"]["p50"] > 0


@pytest.mark.slow
def test_from_python_the_session_runs_at_once(tmp_path: Path) -> None:
    model = written(tmp_path)
    shapes = [{"x": (batch, 3, 16, 16)} for batch in (1, 3)]

    found = product.optimize(model, toolchains="onnxruntime", input_shapes=shapes, tuning_db="memory:", **TINY)

    session = found.session()
    for batch in (3, 1):
        feeds = {"x": x_of(batch)}
        [right] = reference(model, feeds).values()
        np.testing.assert_allclose(session.run(None, feeds)[0], right, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_what_several_shapes_do_not_allow_is_said(tmp_path: Path, collage: Collage) -> None:
    model = written(tmp_path)
    np.savez(tmp_path / "x.npz", x=x_of(1))

    def refused(*arguments: str, shapes: str = SHAPES) -> str:
        done = collage("optimize", model, "-o", "no.collage", "--input-shapes", shapes, *arguments, folder=tmp_path)
        assert done.returncode == 2, done.stderr
        assert not (tmp_path / "no.collage").exists()
        return " ".join(done.stderr.split())

    assert "--inputs is of one shape, and --input-shapes gives several" in refused("--inputs", "x.npz")
    assert "--save-plan and --trace are of one plan" in refused("--save-plan", "plan.json")
    assert "[1, 4, 16, 16] contradicts the model's" in refused(shapes="x:[1|2,4,16,16]")
    with pytest.raises(UsageError, match="no input shapes are given"):
        product.optimize(model, input_shapes=[])
    with pytest.raises(InputShapeError, match="contradicts the model's"):
        product.optimize(model, input_shapes=[{"x": (1, 4, 16, 16)}, {"x": (2, 4, 16, 16)}], **TINY)


@pytest.mark.slow
def test_a_package_of_several_plans_runs_without_one_of_its_toolchains(made: Path, tmp_path: Path) -> None:
    targets = [target for plan in load_package(made / "cnn.collage").plans for target in plan.targets.values()]
    gone = targets[0].toolchain
    environment = Environment(tmp_path / "env", (gone, f"collage-{gone}"))
    code = f"""
import json, sys, warnings
import numpy as np
import collage
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    session = collage.load(sys.argv[1], verify={{"x": np.ones((4, 3, 16, 16), np.float32)}})
for batch in {BATCHES}:
    session.run(None, {{"x": np.ones((batch, 3, 16, 16), np.float32)}})
print(json.dumps([
    [str(each.message) for each in said],
    [each.name for each in session.report().substitutes],
    [each.verified for each in session.sessions],
]))
"""

    done = environment.run(code, made / "cnn.collage")

    assert done.returncode == 0, done.stderr
    [message], substitutes, verified = json.loads(done.stdout)
    assert substitutes[0] in message
    assert all(" for x:[" in each for each in substitutes)
    assert f"pip install collage-{gone}" in message
    assert verified == [False, True], "the values given are of the second shape"


LOADED = """
import dataclasses, json, sys
import collage

session = collage.load(sys.argv[1])
report = session.report()
print(json.dumps({"memory": [dataclasses.asdict(each) for each in report.memory], "said": str(report)}))
"""


@pytest.mark.slow
def test_each_further_plan_adds_one_packed_copy_of_the_weights_at_most(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((512, 4096), np.float32)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 20]> g (float[batch,512] x, float[512,4096] w) => (float[batch,4096] y)'
        "{ m = MatMul(x, w) y = Relu(m) }"
    )
    w = model.graph.inputs.pop()
    w.const_value = ir.tensor(weights, name="w")
    model.graph.register_initializer(w)
    ir.save(model, tmp_path / "wide.onnx")
    shapes = [{"x": (batch, 512)} for batch in (4, 64)]
    options: dict[str, Any] = {"toolchains": "onnxruntime", "tuning_db": "memory:", **TINY}
    product.optimize(tmp_path / "wide.onnx", input_shapes=shapes, **options).save(tmp_path / "wide.collage")

    ran = subprocess.run(
        [sys.executable, "-P", "-c", LOADED, str(tmp_path / "wide.collage")],
        capture_output=True,
        text=True,
        check=True,
    )

    facts = json.loads(ran.stdout)
    first, further = facts["memory"]
    assert first["input_shapes"] == "x:[64,512]", "the largest first, whose arena the others share"
    assert further["input_shapes"] == "x:[4,512]"
    assert further["loaded_bytes"] <= 1.1 * weights.nbytes + (4 << 20)
    assert "plans took, when loaded one after the other, " in facts["said"]
    assert " MiB for x:[4,512]" in facts["said"]
