"""A plan of lower precision that exceeds the bound on inputs that nothing has used."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import onnx_ir
import pytest

import collage
from collage.build.plan_builder import PlanBuilder
from collage.decide.decision import decide
from collage.measure.driver.source import MeasuringCostSource
from collage.setup.workload import Workload
from collage_core.contract import Cost, Unmeasured
from collage_core.fusion import CandidateKernel
from collage_testing import GraphBuilder

pytestmark = pytest.mark.plugins("openvino")

BOUND = 0.05


def net() -> onnx_ir.Model:
    g = GraphBuilder("net")
    value = g.input("x", 32, 64)
    for number in range(4):
        value = g.op("Tanh", g.op("MatMul", value, g.weight(f"w{number}", 64, 64)))
    return g.model(value)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Plans whose numbers were verified: their products in int8. Integers are fast here, whatever the machine says."""
    found: list[int] = []
    cost, verified = MeasuringCostSource.cost, PlanBuilder.verified

    def cheap(self: MeasuringCostSource, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        known = cost(self, candidate, confirmed=confirmed)
        return known if isinstance(known, Unmeasured) or candidate.target.exact else known / 1000

    def noted(self: PlanBuilder, plan: Any) -> Any:
        found.append(sum(len(kernel.sub_graph.int8) for kernel in plan.kernels))
        return verified(self, plan)

    monkeypatch.setattr(MeasuringCostSource, "cost", cheap)
    monkeypatch.setattr(PlanBuilder, "verified", noted)
    # the race is of real times; the plan in int8 wins it here
    monkeypatch.setattr("collage.decide.kept.decide", _first_in_int8)
    return found


def _first_in_int8(contenders: Any, seed: int, **others: Any) -> Any:
    decision = decide(contenders, seed, **others)
    named = [each.name for each in contenders if "int8" in each.name]
    return dataclasses.replace(decision, winner=named[0]) if named else decision


def optimized(folder: Path) -> Any:
    return collage.optimize(
        net(),
        toolchains="openvino,openvino(precision=int8)",
        preset="quick",
        max_error=BOUND,
        tuning_db=str(folder / "tuning.sqlite"),
    )


@pytest.mark.slow  # two searches in 8 bits
def test_the_search_is_repeated_for_a_smaller_error_and_the_package_keeps_to_the_bound(
    tmp_path: Path, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = Workload.fresh_inputs
    # four times what ranges were taken from: what is quantised saturates
    monkeypatch.setattr(Workload, "fresh_inputs", lambda self: {k: 4 * v for k, v in fresh(self).items()})

    found = optimized(tmp_path)

    assert found.record.max_error <= BOUND
    assert len(tried) > 1
    assert tried[0] > tried[-1]
    assert any("too inexact on fresh inputs" in note and "searched again" in note for note in found.record.notes)


@pytest.mark.slow
def test_nothing_is_repeated_where_fresh_inputs_are_like_the_samples(tmp_path: Path, tried: list[int]) -> None:
    found = optimized(tmp_path)

    assert 0 < found.record.max_error <= BOUND
    assert len(tried) == 1
    assert tried[0] > 0
    [region] = found.record.regions
    assert region.precision is not None
    assert len(region.precision.int8) == tried[0]
    assert any("ranges of 8-bit integers are guesses" in note for note in found.record.notes)
