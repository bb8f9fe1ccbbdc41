"""What a user says about a plan, over real toolchains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from click.testing import CliRunner, Result
from onnx_ir.passes import Sequential

from collage.cli import main
from collage.commands import collage_fuse_ops
from collage.commands.collage_fuse_ops import CollageFuseOps
from collage.commands.load import load
from collage.options import OptimizeOptions
from collage.prepare.steps import prepare
from collage_core.ir.io.model_io import load_model
from collage_core.passes.fuse_ops import FuseOps
from tests.integration.commands.conftest import BOTH, TINY, TINY_ARGUMENTS, check
from tests.integration.commands.models import inputs, reference, written


def collage(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def owners(model: onnx_ir.Model) -> list[str]:
    """Who owns each call, in order; `""` for a node that is no call."""
    functions = {key: f.metadata_props.get("collage.compiler", "") for key, f in model.functions.items()}
    return [functions.get(node.op_identifier(), "") for node in model.graph]


def same_numbers(model: onnx_ir.Model, path: Path) -> None:
    feeds = inputs(path)
    actual = onnx.reference.ReferenceEvaluator(onnx_ir.to_proto(model)).run(None, feeds)
    for got, right in zip(actual, reference(path, feeds).values(), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-6)


@pytest.fixture
def no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("nothing is to be searched")

    monkeypatch.setattr(collage_fuse_ops, "explore", refuse)


def test_partition_marks_what_one_toolchain_takes_and_writes_a_model_any_runtime_reads(tmp_path: Path) -> None:
    path, out = written("cnn", tmp_path), tmp_path / "out.onnx"

    result = collage("partition", path, "--for", "reference", "-o", out)

    assert result.exit_code == 0, result.output
    assert "reference takes 8 of 8 nodes" in result.stdout
    onnx.checker.check_model(str(out))
    model = load_model(out)
    assert set(owners(model)) <= {"reference", ""}
    assert {node.op_type for node in model.graph if node.op_identifier() not in model.functions} == {"Flatten"}
    same_numbers(model, path)


@pytest.mark.usefixtures("no_search")
def test_a_pass_that_has_one_toolchain_left_searches_nothing_and_one_that_has_nothing_left_does_nothing(
    tmp_path: Path,
) -> None:
    path = written("cnn", tmp_path)
    model = prepare(load_model(path))
    FuseOps()(model)
    fuse = CollageFuseOps(OptimizeOptions(toolchains="reference", tuning_db="memory:"))

    first = fuse(model)
    second = fuse(first.model)

    assert first.modified
    assert not fuse.searched
    assert not second.modified
    assert owners(first.model).count("reference") == sum(1 for node in first.model.graph if node.op_type != "Flatten")
    same_numbers(second.model, path)


@pytest.mark.slow
@pytest.mark.plugins
def test_a_pass_partitions_by_search_what_earlier_passes_left(tmp_path: Path) -> None:
    path = written("transformer", tmp_path)
    fuse = CollageFuseOps(OptimizeOptions(toolchains=BOTH, tuning_db="memory:", pins=("softmax_0=openvino",), **TINY))
    model = prepare(load_model(path))

    result = fuse(model)

    assert fuse.searched
    assert "openvino" in owners(result.model)
    assert not fuse(result.model).modified
    assert [node.op_type for node in model.graph if node.domain == "collage"] == []  # the one given is as it was
    same_numbers(result.model, path)


@pytest.mark.slow
@pytest.mark.plugins
def test_pins_are_kept_saved_edited_and_forced(tmp_path: Path) -> None:
    path = written("cnn", tmp_path)
    common = ("--toolchains", BOTH, "--tuning-db", tmp_path / "db.sqlite", *TINY_ARGUMENTS)
    feeds = inputs(path)

    pinned = collage(
        *("optimize", path, "-o", tmp_path / "1.collage", "--json", tmp_path / "1.json", *common),
        *("--pin", "conv_0=openvino", "--pin", "gemm_0=onnxruntime", "--save-plan", tmp_path / "plan.json"),
    )

    assert pinned.exit_code == 0, pinned.stderr
    document = json.loads((tmp_path / "plan.json").read_text())
    by_node = {node: kernel["target"] for kernel in document["kernels"] for node in kernel["nodes"]}
    assert by_node["conv_0"].startswith("openvino")
    assert by_node["gemm_0"].startswith("onnxruntime")
    regions = json.loads((tmp_path / "1.json").read_text())["regions"]
    assert [region["nodes"] for region in regions] == [kernel["nodes"] for kernel in document["kernels"]]

    nodes = ["conv_0", "relu_0", "conv_1", "relu_1", "add_0", "globalaveragepool_0", "gemm_0", "softmax_0"]
    kernels = [{"target": BOTH.split(",")[place % 2], "nodes": [node]} for place, node in enumerate(nodes)]
    (tmp_path / "mine.json").write_text(json.dumps({"schema_version": 1, "kernels": kernels}))
    forced = collage(
        *("optimize", path, "-o", tmp_path / "2.collage", "--json", tmp_path / "2.json", *common),
        *("--load-plan", tmp_path / "mine.json"),
    )

    assert forced.exit_code == 0, forced.stderr
    facts = json.loads((tmp_path / "2.json").read_text())
    assert [(r["toolchain"], r["nodes"]) for r in facts["regions"]] == [
        (kernel["target"], kernel["nodes"]) for kernel in kernels
    ]
    assert facts["search"]["method"] == "given plan"
    assert "was asked for; no other was tried" in " ".join(forced.stdout.split())
    for package in ("1.collage", "2.collage"):
        session = load(tmp_path / package)
        names = [output.name for output in session.get_outputs()]
        check(dict(zip(names, session.run(None, feeds), strict=True)), reference(path, feeds))

    benched = collage(
        *("bench", path, tmp_path / "1.collage", "--plan", tmp_path / "mine.json", "--toolchains", BOTH),
        *("--rounds", 2, "--duration", "0.2", "--json", tmp_path / "bench.json"),
    )
    assert benched.exit_code == 0, benched.stderr
    losses = json.loads((tmp_path / "bench.json").read_text())["apparent_losses"]
    assert [(loss["contender"], loss["plan"]) for loss in losses] == [("collage", "mine")]
    assert "apparent loss of collage against mine:" in benched.stdout


@pytest.mark.slow
@pytest.mark.plugins
def test_a_pin_nobody_can_keep_ends_with_status_2_and_the_toolchains_reason(tmp_path: Path) -> None:
    path = written("refused", tmp_path)

    result = collage(
        *("optimize", path, "-o", tmp_path / "out.collage", "--toolchains", BOTH, "--tuning-db", "memory:"),
        *(*TINY_ARGUMENTS, "--pin", "pool=openvino"),
    )

    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "--pin 'pool=openvino' cannot be kept" in said
    assert "openvino: " in said
    assert not (tmp_path / "out.collage").exists()


@pytest.mark.slow
@pytest.mark.plugins
def test_what_fuse_ops_marks_runs_as_one_kernel_of_whoever_is_faster(tmp_path: Path) -> None:
    path, fused = written("cnn", tmp_path), tmp_path / "fused.onnx"
    model = prepare(load_model(path))
    Sequential(FuseOps())(model)
    onnx_ir.save(model, fused)

    result = collage(
        *("optimize", fused, "-o", tmp_path / "out.collage", "--json", tmp_path / "out.json", "--toolchains", BOTH),
        *("--tuning-db", "memory:", *TINY_ARGUMENTS),
    )

    assert result.exit_code == 0, result.stderr
    calls = sum(1 for node in model.graph if node.op_identifier() in model.functions)
    regions = json.loads((tmp_path / "out.json").read_text())["regions"]
    assert calls > 0
    assert len(regions) >= calls
    feeds = inputs(path)
    session = load(tmp_path / "out.collage")
    names = [output.name for output in session.get_outputs()]
    check(dict(zip(names, session.run(None, feeds), strict=True)), reference(path, feeds))


@pytest.mark.slow
def test_the_same_bits_are_asked_for_said_and_kept(tmp_path: Path) -> None:
    path, out = written("cnn", tmp_path), tmp_path / "plan.collage"
    arguments = ("--toolchains", "reference", "--tuning-db", "memory:", *TINY_ARGUMENTS)

    result = collage("optimize", path, "-o", out, *arguments, "--deterministic", "--json", tmp_path / "plan.json")

    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "plan.json").read_text())["deterministic"] is True
    assert "that give the same bits each time took part (--deterministic)" in collage("explain", out).stdout
    session = load(out)
    runs = [[value.tobytes() for value in session.run(None, inputs(path))] for _ in range(2)]
    assert runs[0] == runs[1]
