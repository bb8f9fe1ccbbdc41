"""Models with something odd in them, from `inspect` to a package that a process of its own runs.

Some stand beside each other in one model, which is optimized once; so each lies between others, and the plan mixes
toolchains. In the slow run all do, and each is on its own, too.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from click.testing import CliRunner, Result

import collage
from collage.cli import main
from collage.prepare.steps import prepare
from collage.values.npz import from_arrays, to_arrays
from collage_core.fusion import CandidateBounds
from collage_testing import MockToolchain, partition
from tests.integration.commands.conftest import BOTH, TINY, TINY_ARGUMENTS, alternating
from tests.integration.input import (
    odd_bodies,
    odd_chance,
    odd_form,
    odd_shapes,
    odd_types,
    odd_values,
)
from tests.integration.input.odd_models import ODD, Joined, OddModel, joined, same

pytestmark = pytest.mark.plugins

MODULES = (odd_bodies, odd_values, odd_shapes, odd_types, odd_form, odd_chance)
TOOLCHAINS = f"{BOTH},reference"
FEW = (
    "branches_by_input",
    "loop_until",
    "sequence_in_and_out",
    "strings",
    "selected",
    "brain_float",
)
"""Those of the default run."""
ALONE = {
    **ODD,
    "no_inputs": odd_form.no_inputs,
    "no_nodes": odd_form.no_nodes,
    "output_twice": odd_form.output_twice,
}
"""Models that are optimized on their own, too, or only so."""


def invoked(*arguments: object) -> Result:
    """A command, run in this process, that is to succeed."""
    result = CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


def optimized(model: Path, package: Path, *arguments: object, toolchains: str = TOOLCHAINS) -> Result:
    """`collage optimize`, next to nothing being measured."""
    measured = ("--toolchains", toolchains, "--tuning-db", "memory:", "--budget", "1h", *TINY_ARGUMENTS)
    return invoked("optimize", model, "-o", package, *measured, *arguments)


def saved(path: Path, values: Mapping[str, Any]) -> Path:
    """Values as a file for `--inputs`."""
    np.savez(path, **dict[str, Any](to_arrays(values)))
    return path


def elsewhere(package: Path, *inputs: Path) -> list[dict[str, Any]]:
    """What a package gives in a process of its own, by the command, for each file of inputs."""
    found = []
    for number, path in enumerate(inputs):
        out = package.with_name(f"{path.stem}.{number}.out.npz")
        code = "from collage.cli import main; main()"
        command = [
            sys.executable,
            "-P",
            "-c",
            code,
            "run",
            str(package),
            "--inputs",
            str(path),
            "--save-outputs",
            str(out),
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        with np.load(out) as arrays:
            found.append(dict(arrays))
    return found


def check(actual: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert set(actual) == set(expected)
    for name, right in expected.items():
        same(actual[name], right, name)


def read_back(arrays: Mapping[str, Any], session: collage.Session) -> dict[str, Any]:
    """What the arrays of a file stand for; a sequence without members is one."""
    return from_arrays(arrays, {each.name: each.type for each in session.get_outputs()})


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bundle:
    """Models as one, optimized by the command over mixed costs.

    Attributes:
        whole: They.
        folder: Where `odd.onnx`, `inputs.npz` and `odd.collage` are.
        toolchains: Those that run a part.
        outputs: What the package gives for each choice of feeds: the first by the command in a process of its own, the
            others in this one.
    """

    whole: Joined
    folder: Path
    toolchains: set[str]
    outputs: list[dict[str, Any]]

    @classmethod
    def of(cls, names: Iterable[str], folder: Path) -> Bundle:
        whole = joined([ODD[name]() for name in names])
        model, package = folder / "odd.onnx", folder / "odd.collage"
        onnx.save(whole.proto, model, save_as_external_data=True, location="weights of the odd", size_threshold=32)
        inputs = saved(folder / "inputs.npz", whole.feeds())
        with alternating():
            optimized(model, package, "--inputs", inputs, "--json", folder / "odd.json")
        report = json.loads((folder / "odd.json").read_text(encoding="utf-8"))
        session = collage.load(package)
        [arrays] = elsewhere(package, inputs)
        keys = [each.name for each in session.get_outputs()]
        again = [session.run(None, whole.feeds(case)) for case in (1, 2)]
        return cls(
            whole=whole,
            folder=folder,
            toolchains={region["toolchain"] for region in report["regions"]},
            outputs=[read_back(arrays, session), *(dict(zip(keys, values, strict=True)) for values in again)],
        )

    def check(self, name: str) -> None:
        """Holds the outputs of one of them to its oracle."""
        for case, found in enumerate(self.outputs):
            expected = self.whole.expected(case)
            actual, right = (
                {key: value for key, value in values.items() if key.startswith(f"{name}/")}
                for values in (found, expected)
            )
            check(actual, right)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return Bundle.of(FEW, tmp_path_factory.mktemp("odd models ☃"))


@pytest.mark.guards(
    "odd models beside each other in one, mixed over three toolchains: bodies in bodies and captured "
    "values, a loop whose turns depend on data, sequences in and out, an optional input, strings, shapes "
    "by data, bfloat16, names that mean something elsewhere; all weights in another file",
    "optimized, run in a process of its own, each output what NumPy says, on inputs that take the other branch too",
    area="input",
)
@pytest.mark.parametrize("name", FEW)
@pytest.mark.slow
def test_a_part_of_a_mixed_plan_computes_what_the_oracle_does(name: str, few: Bundle) -> None:
    few.check(name)
    assert few.toolchains == {"onnxruntime", "openvino", "reference"}


@pytest.mark.guards("`compare` and `explain` of a package made of odd models", "both work", area="input")
@pytest.mark.slow
def test_what_was_made_is_compared_and_explained(few: Bundle) -> None:
    model, package = few.folder / "odd.onnx", few.folder / "odd.collage"

    compared = invoked("compare", model, package, "--inputs", few.folder / "inputs.npz")
    explained = invoked("explain", package)

    assert "strings/greeting" in compared.output
    assert "openvino" in explained.output


@pytest.mark.guards("sequences, optional values, bfloat16 in NPZ files")
@pytest.mark.slow
def test_what_cannot_be_drawn_is_asked_for_by_the_form_it_has(few: Bundle) -> None:
    result = CliRunner().invoke(main, ["run", str(few.folder / "odd.collage")])

    said = " ".join(result.stderr.split())
    assert result.exit_code == 2
    assert "cannot be drawn at random; give it with --inputs FILE.npz: give an array per member, named" in said
    assert "items[0]'" in said


@pytest.mark.guards(
    "28 odd models beside each other in one: also scans both ways, recurrent operators with lengths, "
    "sequences grown in a loop, optional outputs, empty tensors and scalars, rank 8, float16, double, "
    "integers, booleans, functions, sparse, raw and typed weights, all kinds of Constant, Dropout",
    "optimized, run in a process of its own; each output is what NumPy computes",
    area="input",
)
@pytest.mark.slow
def test_all_beside_each_other_compute_what_their_oracles_do(tmp_path: Path) -> None:
    everything = Bundle.of(ODD, tmp_path)

    for name in ODD:
        everything.check(name)


@pytest.mark.guards(
    "each odd model alone; a model without inputs, one without nodes, one value as two outputs",
    "every command works; each output is what NumPy computes",
    area="input",
)
@pytest.mark.slow
@pytest.mark.parametrize("name", ALONE)
def test_each_alone_goes_through_every_command(name: str, tmp_path: Path) -> None:
    one = ALONE[name]()
    model, package = tmp_path / "odd.onnx", tmp_path / "odd.collage"
    onnx.save(one.proto, model)
    files = [saved(tmp_path / f"{case}.npz", feeds) for case, feeds in enumerate(one.feeds)]
    given = ["--inputs", files[0]]

    invoked("inspect", model)
    optimized(model, package, *given)
    invoked("compare", model, package, *given)
    invoked("explain", package)
    invoked("bench", package, *given, "--rounds", "1", "--duration", "0.01", "--warmup", "0")

    session = collage.load(package)
    for case, arrays in enumerate(elsewhere(package, *files)):
        check(read_back(arrays, session), one.expected(case))


@pytest.mark.guards("sequences and optional values given to a session or to `optimize` in Python")
@pytest.mark.slow
def test_python_takes_and_gives_lists_none_and_strings() -> None:
    one = odd_values.optional_out()
    model = onnx_ir.from_proto(one.proto)

    module = collage.optimize(model, toolchains=TOOLCHAINS, inputs=one.feeds[0], tuning_db="memory:", **TINY)
    session = module.session()

    names = [each.name for each in session.get_outputs()]
    for case, feeds in enumerate(one.feeds):
        check(dict(zip(names, session.run(None, feeds), strict=True)), one.expected(case))


@pytest.mark.guards(
    "random operators",
    "run, drawn anew each time; checked for type and rank; listed as not independently checked",
    area="input",
)
@pytest.mark.slow
def test_numbers_drawn_at_random_are_drawn_anew_and_said_to_be_unchecked(tmp_path: Path) -> None:
    one = odd_chance.chance()
    onnx.save(one.proto, tmp_path / "chance.onnx")

    optimized(tmp_path / "chance.onnx", tmp_path / "chance.collage", toolchains="onnxruntime")
    explained = invoked("explain", tmp_path / "chance.collage")
    invoked("compare", tmp_path / "chance.onnx", tmp_path / "chance.collage")
    session = collage.load(tmp_path / "chance.collage")
    names = [each.name for each in session.get_outputs()]
    first, second = (dict(zip(names, session.run(None, one.feeds[0]), strict=True)) for _ in range(2))

    for name, right in one.expected().items():
        same(first[name], right, name)
        np.testing.assert_array_equal(first[name], second[name])
    assert any((first[name] != second[name]).any() for name in odd_chance.DRAWN)
    assert not (first["noise"] == second["noise"]).any()
    assert 90 < first["noise"].mean() < 110
    assert ((first["uniform"] >= 5) & (first["uniform"] <= 6)).all()
    assert set(np.unique(first["coins"])) <= {0, 1}
    assert "random or stateful operator" in " ".join(explained.output.split())


@pytest.mark.guards("an input with a default value")
@pytest.mark.slow
def test_an_input_with_a_default_value_stays_one_if_a_value_is_given(tmp_path: Path) -> None:
    one = odd_form.kept_constants()
    given = {**one.feeds[0], "given": np.zeros((2, 4), np.float32)}
    onnx.save(one.proto, tmp_path / "kept.onnx")
    inputs = saved(tmp_path / "given.npz", given)

    optimized(tmp_path / "kept.onnx", tmp_path / "kept.collage", "--inputs", inputs)
    invoked("compare", tmp_path / "kept.onnx", tmp_path / "kept.collage", "--inputs", inputs)

    session = collage.load(tmp_path / "kept.collage")
    assert [each.name for each in session.get_inputs()] == ["x", "given"]
    ones = np.ones((2, 4), np.float32)
    before, after = (session.run(["y"], {**given, "given": value})[0] for value in (given["given"], ones))
    np.testing.assert_allclose(after - before, ones / 2, rtol=1e-4)


@pytest.mark.guards(
    "2,000 nodes one after another; 500 branches into one node", "partitioned, and optimized", area="input"
)
@pytest.mark.parametrize("build", [lambda: odd_shapes.chain(2000), lambda: odd_shapes.fan(500)], ids=["deep", "wide"])
def test_what_is_deep_or_wide_is_partitioned(build: Callable[[], OddModel]) -> None:
    one = build()
    tools = [MockToolchain("one", costs_us=lambda view: 1.0), MockToolchain("two", costs_us=lambda view: 2.0)]

    result = partition(prepare(onnx_ir.from_proto(one.proto)), tools, bounds=CandidateBounds.preset("quick"))

    assert {kernel.toolchain for kernel in result.kernels} == {"one"}


@pytest.mark.guards("2,000 nodes one after another; 500 branches into one node")
@pytest.mark.slow
@pytest.mark.parametrize("build", [lambda: odd_shapes.chain(2000), lambda: odd_shapes.fan(500)], ids=["deep", "wide"])
def test_what_is_deep_or_wide_goes_through_every_command(
    build: Callable[[], OddModel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ALONE, "it", build)

    test_each_alone_goes_through_every_command("it", tmp_path)
