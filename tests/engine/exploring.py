"""A cost source that measures nothing, and graphs with their candidates, to see what the pipeline makes of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from typing import cast

import onnx_ir

from collage.explore.exploration import ExplorationSetup
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.driver.source import Counts, MeasuringCostSource, Step
from collage.measure.wire.outcomes import Failed, Measured, Refused, Stage
from collage.options import PRESETS, Preset
from collage.report.progress import SilentProgress
from collage_core.candidates.costs import CacheKey, Costs, KnownCosts
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule
from collage_core.candidates.refusals import Rejection
from collage_core.contract import INVALID, UNMEASURED, Cost, KernelProfile, ProfiledPart, Unmeasured, Unsupported
from collage_core.fusion import CandidateBounds, CandidateKernel, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.core.candidates.making import a_target as a_target
from tests.core.candidates.making import kernel as kernel
from tests.core.candidates.making import rule_of as rule_of

Truth = Callable[[CandidateKernel], float | Refused | Failed]
"""What measuring a candidate comes to: microseconds, or why there are none."""


class FakeSource:
    """Answers as `MeasuringCostSource` does, the truth about a candidate being a function of it.

    Args:
        truth: What measuring comes to.
        known: What is in its database, by target and key; shared between sources, it is one database.
        profile_us: Microseconds of a node on a target, as its profiler would say; None if it has no profiler.

    Attributes:
        measured: Name of the target and names of the nodes of each candidate that was measured, in order.
        asked: How often a cost was asked for.
    """

    def __init__(
        self,
        truth: Truth,
        known: dict[CacheKey, list[float | Refused | Failed]] | None = None,
        profile_us: Callable[[str, onnx_ir.Node], float] | None = None,
    ) -> None:
        self._truth = truth
        self._profile_us = profile_us
        self.known = {} if known is None else known
        self.measured: list[tuple[str, tuple[str, ...]]] = []
        self.asked = 0
        self.counts = Counts()

    def key(self, sub_graph: SubGraph) -> str:
        return sub_graph.structural_hash

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        self.asked += 1
        found = self.known.get(self._key(candidate))
        if not found:
            return UNMEASURED
        # what fails when it is confirmed is not selected any more either
        latest = found[-1 if confirmed or not isinstance(found[-1], float) else 0]
        return latest if isinstance(latest, float) else INVALID

    def medians_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        cost = self.cost(candidate, confirmed=confirmed)
        return (cost,) if isinstance(cost, float) and cost != INVALID else ()

    def ran_s(self, candidate: CandidateKernel) -> float:
        return 1.0 if self.known.get(self._key(candidate)) else 0.0

    def is_confirmed(self, candidate: CandidateKernel) -> bool:
        return len(self.known.get(self._key(candidate), ())) > 1

    def outcome(self, candidate: CandidateKernel) -> Measured | Refused | Failed | None:
        found = self.known.get(self._key(candidate))
        if not found:
            return None
        latest = found[-1]
        if isinstance(latest, float):
            return Measured(samples_us=(latest,), warmup_runs=0, calls_per_sample=1)
        return latest

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        outcome = self.outcome(candidate)
        if isinstance(outcome, Failed):
            return Rejection(stage=outcome.stage.value, reason=outcome.reason)
        return Rejection(stage="lower", reason=outcome.reason) if isinstance(outcome, Refused) else None

    def expect(self, candidates: Iterable[CandidateKernel]) -> None:
        """Nothing is read ahead."""

    def measure(
        self,
        candidates: Iterable[CandidateKernel],
        purpose: str = "select",
        progress: Callable[[Step], None] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        for candidate in candidates:
            records = self.known.setdefault(self._key(candidate), [])
            if records and purpose == "select":
                self.counts.cache_hits += 1
                continue
            records.append(self._truth(candidate))
            self.counts.measured += 1
            self.measured.append((candidate.measured_as.name, candidate.sub_graph.names))
            outcome = self.outcome(candidate)
            if progress is not None and outcome is not None:
                progress(Step(candidate=candidate, outcome=outcome, seconds=0.0))

    def profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported:
        if self._profile_us is None:
            return Unsupported("it has no profiler")
        graph = candidate.sub_graph.graph
        nodes = [graph.nodes[graph.index_of(name)] for name in candidate.sub_graph.names]
        return KernelProfile(
            parts=tuple(
                ProfiledPart(nodes=(str(node.name),), time_us=self._profile_us(candidate.target.name, node))
                for node in nodes
            )
        )

    def _key(self, candidate: CandidateKernel) -> CacheKey:
        return candidate.measured_as.name, self.key(candidate.sub_graph)


def by_operator(costs_us: dict[str, dict[str, float]], *, launch_us: float = 1.0) -> Truth:
    """A truth that adds up: microseconds by target and operator, and what each kernel costs besides."""

    def truth(candidate: CandidateKernel) -> float | Refused | Failed:
        graph, sub_graph = candidate.sub_graph.graph, candidate.sub_graph
        total = launch_us
        for name in sub_graph.names:
            index = graph.index_of(name)
            if graph.is_host(index):
                continue
            cost = costs_us[candidate.measured_as.name].get(graph.nodes[index].op_type)
            if cost is None:
                return Failed(stage=Stage.RUN, reason=f"{candidate.target.name} crashes on {name}")
            total += cost
        return total

    return truth


@dataclasses.dataclass
class MeasuredPool:
    """A pool whose candidates are all measured."""

    pool: CandidatePool
    source: FakeSource


def pool_of(graph: DataflowGraph, truth: Truth, *candidates: CandidateKernel, dispatch_us: float = 0.0) -> MeasuredPool:
    """A pool of these candidates, all measured."""
    source = FakeSource(truth)
    pool = empty_pool(graph, source, dispatch_us).with_candidates(candidates)
    source.measure(candidates)
    return MeasuredPool(pool, source)


def empty_pool(graph: DataflowGraph, source: KnownCosts, dispatch_us: float = 0.1) -> CandidatePool:
    """A pool without candidates."""
    return CandidatePool(graph, Costs(source), dispatch_us)


def setup_of(
    source: FakeSource,
    rules: Sequence[TargetRule],
    *,
    preset: Preset | str = "default",
    bounds: CandidateBounds | None = None,
    budget: Budget = UNLIMITED,
    running_s: float = math.inf,
) -> ExplorationSetup:
    """What an exploration is given that measures nothing."""
    return ExplorationSetup(
        rules=rules,
        source=cast(MeasuringCostSource, source),
        preset=PRESETS[preset] if isinstance(preset, str) else preset,
        bounds=bounds or CandidateBounds(),
        progress=SilentProgress(),
        budget=budget,
        running_s=running_s,
    )
