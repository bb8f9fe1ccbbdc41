"""From a model to a package that a fresh process runs, over ONNX Runtime and OpenVINO."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.commands.optimize import optimize
from collage.decide.races import race
from collage.measure.contenders.interleaved import Contender
from collage.measure.wire.messages import Burst
from collage.options import OptimizeOptions
from collage.report.facts.record import Record
from collage.runtime.package import load_package
from collage_core.passes.call_sites import call_sites
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
    "name", ["cnn", *(pytest.param(name, marks=pytest.mark.slow) for name in MODELS if name not in ("cnn", "refused"))]
)
def test_a_mixed_plan_computes_what_the_model_says_in_a_fresh_process(
    name: str, tmp_path: Path, collage: Collage
) -> None:
    mixed(name, tmp_path, collage)


@pytest.mark.slow
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


def in_steps(contenders: Sequence[Contender], *, rounds: int, on_burst: Callable[[str, Burst], None], **_: Any) -> Any:
    """Stands for the timing of whole plans: each step takes 100 us in place, and a plan of one kernel 10 ms."""
    found: dict[str, Any] = {}
    for contender in contenders:
        sites = [site.name for site in call_sites(load_package(str(contender.arguments["package"])).plan.model)]
        parts_us = dict.fromkeys(sites, 100.0) if len(sites) > 1 else {}
        samples_us = (sum(parts_us.values()) or 10_000.0,) * 3
        burst = Burst(samples_us=samples_us, parts_us=parts_us, calibration_us=50.0)
        for name in [contender.name] * rounds:
            on_burst(name, burst)
        found[contender.name] = (samples_us,) * rounds
    return found


@pytest.mark.slow
def test_kernels_cost_what_they_take_in_place_and_a_certificate_is_of_the_costs_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("scipy", reason="the integer program is HiGHS's, which SciPy brings")
    monkeypatch.setattr(race, "interleaved", in_steps)
    options = OptimizeOptions(toolchains=BOTH, tuning_db="memory:", search="ilp", **TINY)

    record = optimize(written("cnn", tmp_path), options).record

    plan = record.comparison.contenders[0]
    assert plan.kind == "mixed"
    costs_us = [region.cost_us for region in record.regions]
    assert len(set(costs_us)) == 1  # the same for each kernel, brought to the machine's usual speed
    assert plan.predicted_ms == pytest.approx(sum(costs_us) / 1000, rel=0.01)
    assert plan.alone_ms is not None
    assert plan.predicted_ms is not None
    assert plan.alone_ms < plan.predicted_ms
    assert any(note.startswith("certified by an integer program") for note in record.notes)


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
