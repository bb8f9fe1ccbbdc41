"""Plans that mix precisions, with costs and errors made up, against all plans of the same kernels."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from collage.precision.mixed_plan import PrecisionMix
from collage.precision.segments import segments
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.report.progress import SilentProgress
from collage_core.candidates.costs import Costs
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import UNMEASURED, Cost, Unmeasured
from collage_core.fusion import CandidateKernel, SubGraph
from collage_core.ir.graph.masks import iterate_bits
from tests.engine.precision.chains import BF16, INT8, PLAIN, chain, sensitivities

LENGTH = 6
GRAPH = chain(LENGTH)
SPEED = {PLAIN.name: 100.0, BF16.name: 55.0, INT8.name: 30.0}
"""Microseconds of a product on each target; one of `INT8` that is not quantised takes as long as on `PLAIN`."""
KERNEL_US = 3.0


def cost_us(kernel: CandidateKernel) -> float:
    eight = {product.node for product in kernel.sub_graph.int8}
    rest = PLAIN.name if kernel.target is INT8 else kernel.target.name
    nodes = list(iterate_bits(kernel.sub_graph.nodes))
    return KERNEL_US + sum(SPEED[INT8.name if node in eight else rest] for node in nodes)


class Source:
    """Measures by `cost_us`, and counts."""

    def __init__(self) -> None:
        self.measured: set[CandidateKernel] = set()

    def key(self, sub_graph: SubGraph) -> str:
        return f"{sub_graph.nodes:x}{sub_graph.form}"

    def measure(self, candidates: list[CandidateKernel]) -> None:
        self.measured.update(candidates)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        return cost_us(candidate) if candidate in self.measured else UNMEASURED

    def rejection(self, candidate: CandidateKernel) -> None:
        return None


def wholes(found: Sensitivities, chosen: list[int]) -> dict[CandidateKernel, float]:
    whole = (1 << LENGTH) - 1
    kernels = [
        found.quantised(GRAPH, whole, target, chosen if target is INT8 else ()) for target in (PLAIN, BF16, INT8)
    ]
    return {kernel: cost_us(kernel) for kernel in kernels}


def mixed(found: Sensitivities, bound: float, true: Sensitivities) -> tuple[Plan | None, Source, list[float]]:
    source, runs = Source(), []
    known = wholes(found, list(range(2)))
    source.measure(list(known))
    pool: CandidatePool = CandidatePool(GRAPH, Costs(source), 0.0).with_candidates(known)

    def run(plan: Plan) -> float:
        runs.append(math.sqrt(sum(map(true.square, plan.kernels))))
        return runs[-1]

    errors = {kernel: math.sqrt(true.square(kernel)) for kernel in known}
    within = {kernel: error for kernel, error in errors.items() if error <= bound}
    mix = PrecisionMix(
        pool,
        list(known.items()),
        found,
        bound,
        within,
        source,  # type: ignore[arg-type]  # the part that is used
        run,
        lambda: False,
        SilentProgress(),
    )
    return mix.plan(min(known[kernel] for kernel in within)), source, runs


def best_us(found: Sensitivities, bound: float) -> float:
    """Try all ways to put segments one after another."""
    source = Source()
    pool = CandidatePool(GRAPH, Costs(source), 0.0)
    known = wholes(found, list(range(2)))
    kernels = [*known, *(each.candidate for each in segments(pool, list(known.items()), found))]
    by_first: dict[int, list[CandidateKernel]] = {}
    for kernel in kernels:
        by_first.setdefault((kernel.sub_graph.nodes & -kernel.sub_graph.nodes).bit_length() - 1, []).append(kernel)

    def plans(start: int) -> Iterator[list[CandidateKernel]]:
        if start == LENGTH:
            yield []
        for kernel in by_first.get(start, ()):
            for rest in plans(kernel.sub_graph.nodes.bit_length()):
                yield [kernel, *rest]

    return min(sum(map(cost_us, plan)) for plan in plans(0) if sum(map(found.square, plan)) <= bound**2 * (1 + 1e-9))


@pytest.mark.parametrize("seed", range(12))
def test_the_plan_is_near_the_best_of_all_and_keeps_to_the_bound(seed: int) -> None:
    rng = random.Random(seed)
    found = sensitivities([rng.uniform(0.1, 1.0) for _ in range(LENGTH)])
    bound = rng.uniform(0.2, 0.8)

    plan, source, runs = mixed(found, bound, found)

    best = best_us(found, bound)
    single = min(cost for kernel, cost in wholes(found, [0, 1]).items() if found.square(kernel) <= bound**2)
    got = single if plan is None else plan.predicted_us
    assert got <= 1.12 * best, "of 84 kernels at most 20 are measured"
    if plan is not None:
        assert math.sqrt(sum(map(found.square, plan.kernels))) <= bound
        assert got == pytest.approx(sum(map(cost_us, plan.kernels)))
    assert len(source.measured) <= 3 + 20
    assert len(runs) <= 4


def test_no_plan_beyond_the_bound_is_returned_however_wrong_the_expectation_is() -> None:
    found = sensitivities([0.1] * LENGTH)
    worse = sensitivities([0.5] * LENGTH)

    plan, _, runs = mixed(found, 0.4, worse)

    assert runs
    assert plan is None or math.sqrt(sum(map(worse.square, plan.kernels))) <= 0.4


def test_segments_are_runs_of_nodes_in_each_form() -> None:
    found = sensitivities([0.1] * LENGTH)
    pool = CandidatePool(GRAPH, Costs(Source()), 0.0)

    made = [each.candidate for each in segments(pool, list(wholes(found, [0, 1]).items()), found)]

    spans: Mapping[int, Any] = {kernel.sub_graph.nodes: None for kernel in made}
    assert len(spans) == 20, "21 runs between five cuts, the whole model left out"
    for nodes in spans:
        assert nodes & (nodes + (nodes & -nodes)) == 0, "nodes that follow one another"
    forms = [kernel.sub_graph.form for kernel in made if kernel.target is INT8]
    assert len(set(itertools.chain(forms))) > 20, "with what the whole model quantises, and with everything"
