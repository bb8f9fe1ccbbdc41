"""From a model to a package that a fresh process runs, over ONNX Runtime and OpenVINO."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from collage.commands.optimize import optimize
from collage.options import OptimizeOptions
from collage.report.facts.record import Record
from tests.integration.commands.conftest import BOTH, TINY, Collage, check
from tests.integration.commands.models import MODELS, inputs, reference, written

pytestmark = [pytest.mark.plugins, pytest.mark.usefixtures("alternating_costs")]


def mixed(name: str, folder: Path, collage: Collage) -> Record:
    """Optimizes a model, and has a fresh process run the package on inputs of its own."""
    model = written(name, folder)
    feeds = inputs(model)
    np.savez(folder / "in.npz", **feeds)  # type: ignore[arg-type]

    optimized = optimize(model, OptimizeOptions(toolchains=BOTH, tuning_db="memory:", **TINY))
    optimized.save(folder / "plan.collage")
    ran = collage("run", "plan.collage", "--inputs", "in.npz", "--save-outputs", "out.npz", folder=folder)

    assert ran.returncode == 0, ran.stderr
    check(dict(np.load(folder / "out.npz")), reference(model, feeds))
    assert {region.toolchain for region in optimized.record.regions} == {"onnxruntime", "openvino"}
    assert optimized.record.max_error < 1e-4
    return optimized.record


@pytest.mark.parametrize(
    "name", ["odd", *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in ("odd", "refused"))]
)
def test_a_mixed_plan_computes_what_the_model_says_in_a_fresh_process(
    name: str, tmp_path: Path, collage: Collage
) -> None:
    mixed(name, tmp_path, collage)


def test_what_one_toolchain_refuses_another_runs_and_both_say_why(tmp_path: Path, collage: Collage) -> None:
    record = mixed("refused", tmp_path, collage)

    [pool] = [region for region in record.regions if "pool" in region.nodes]
    assert pool.toolchain == "onnxruntime"
    assert any(fact.target == "openvino" and "pool" in fact.nodes for fact in record.refusals)
    [alone] = [each for each in record.comparison.contenders if each.name == "openvino"]
    assert alone.kind == "single"
    assert alone.toolchains == ("onnxruntime", "openvino")
    assert alone.regions > 1
    assert not any(each.latency_ms is None and not each.failed for each in record.comparison.contenders)


@pytest.mark.slow
def test_a_plan_changed_by_moves_is_built_timed_and_right(tmp_path: Path, collage: Collage) -> None:
    """Whole plans are said to be the faster the more kernels they have, so moves that split are what is kept."""
    model = written("odd", tmp_path)
    feeds = inputs(model)
    np.savez(tmp_path / "in.npz", **feeds)  # type: ignore[arg-type]
    options = OptimizeOptions(toolchains=BOTH, tuning_db="memory:", search="two-level", **TINY)

    optimized = optimize(model, options)
    optimized.save(tmp_path / "plan.collage")
    ran = collage("run", "plan.collage", "--inputs", "in.npz", "--save-outputs", "out.npz", folder=tmp_path)

    assert ran.returncode == 0, ran.stderr
    check(dict(np.load(tmp_path / "out.npz")), reference(model, feeds))
    record = optimized.record
    assert record.search.method == "two-level"
    assert optimized.trace is not None
    assert any(each["parent"] is not None for each in optimized.trace["evaluations"])
    others = [each.regions for each in record.comparison.contenders if each.name != "two-level" and not each.failed]
    assert len(record.regions) >= max(others)
