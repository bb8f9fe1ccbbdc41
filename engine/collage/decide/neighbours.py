"""What one move makes of plans, and what it may cost."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

from collage_core.candidates.boundary import boundary_bytes
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Unmeasured
from collage_core.fusion import CandidateKernel, Partitioning, SubGraph
from collage_core.fusion.cuts import cut_positions
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.graph.work import estimated_work_us, work_kinds
from collage_core.search import GUESSED, Beliefs, TargetBelief
from collage_core.search.moves import Choice, Moves

_CUTS = 12
"""Positions at which kernels may be split; of the 91 stretches between them, only those on plans that are timed run."""


def moves_over(pool: CandidatePool, kernels: Iterable[CandidateKernel]) -> Moves:
    """Return moves over what is measured and works, and over some other kernels.

    Args:
        pool: The candidates.
        kernels: What plans are made of, and what one move makes of those; all of them in the pool.
    """
    made = set(map(pool.searched, kernels))
    problem = pool.problem()
    kept = [c for c in problem.candidates if c in made or pool.selected_us(pool.candidate(c)) is not None]
    return Moves(dataclasses.replace(problem, candidates=tuple(kept)))


def choice_of(pool: CandidatePool, plan: Plan) -> Choice:
    """Return a plan as the search sees it."""
    return tuple(map(pool.searched, plan.kernels))


def plan_of(pool: CandidatePool, name: str, choice: Choice) -> Plan:
    """Return a plan of a choice at the pool's costs; unmeasured kernels cost nothing."""
    kernels = tuple(pool.candidate(chosen) for chosen in choice)
    costs = (pool.cost(kernel) for kernel in kernels)
    return Plan(
        name=name,
        single=False,
        partitioning=Partitioning(pool.graph, kernels),
        costs_us=tuple(0.0 if isinstance(cost, Unmeasured) else cost for cost in costs),
        dispatch_us=pool.dispatch_us,
        copies=pool.copies(kernels),
    )


def variants_of(pool: CandidatePool, plan: Plan) -> list[Plan]:
    """Return the mixed plans of measured kernels that are one move away, or have one border elsewhere."""
    moves, choice = moves_over(pool, plan.kernels), choice_of(pool, plan)
    others = [*(other for _, other in moves.neighbours(choice)), *moves.shifted(choice)]
    found = [plan_of(pool, plan.name, other) for other in others]
    return [each for each in found if len(each.kernels) > 1]


def reachable_kernels(
    pool: CandidatePool, starts: Sequence[Plan], proposals: Mapping[str, Proposals]
) -> Iterator[CandidateKernel]:
    """Yield what moves make of the kernels of the starts, for whoever takes all of its nodes.

    That is each kernel, touching pairs of them joined, and parts of each between positions at which few tensors cross
    the graph: otherwise there is nothing into which the kernel of a whole model could be split.

    Args:
        pool: Candidates with what they cost.
        starts: Plans.
        proposals: What each target takes, by name.
    """
    graph = pool.graph
    marked = mask_of(graph.compilers)  # what calls a function marked as one kernel is joined with nothing
    regions: dict[int, None] = {}
    ends = [0, *cut_positions(graph, _CUTS), len(graph)]
    stretches = [(1 << end) - (1 << begin) for begin, end in itertools.combinations(ends, 2)]
    for plan in starts:
        kernels = [kernel.sub_graph for kernel in plan.kernels]
        regions.update((each.nodes, None) for each in kernels)
        inside = (graph.completed(each.nodes & stretch) for each in kernels for stretch in stretches)
        regions.update((nodes, None) for nodes in inside if nodes and not nodes & marked)
        for at, one in enumerate(kernels):
            for other in kernels[at + 1 :]:
                union = SubGraph(graph, graph.completed(one.nodes | other.nodes))
                if not union.nodes & marked and (one.touches(other) or other.touches(one)) and union.is_convex:
                    regions[union.nodes] = None
    for name in sorted(proposals):
        each = proposals[name]
        target = each.rule.target
        if not each.rule.takes_any_region:
            continue
        for nodes in regions:
            if not nodes & graph.needs_kernel & ~each.covered and (target.mixable or nodes == pool.whole):
                candidate = CandidateKernel(SubGraph(graph, nodes), each.rule.spec, target)
                if pool.rejection(candidate) is None or pool.selected_us(candidate) is not None:
                    yield candidate


def beliefs_of(pool: CandidatePool) -> Beliefs:
    """Return what the pool's costs teach of kernels that have none.

    The first belief of a target is the estimated work, as many times as large as its measured kernels take of it.
    """
    work, kinds = estimated_work_us(pool.graph), work_kinds(pool.graph)
    names = {candidate.target.name for candidate in pool}
    measured = [
        (candidate.target.name, candidate.sub_graph.nodes, cost)
        for candidate in pool
        if (cost := pool.selected_us(candidate)) is not None
    ]
    first = {}
    for name in names:
        shares = [
            cost / expected
            for target, nodes, cost in measured
            if target == name and (expected := sum(work[index] for index in iterate_bits(nodes)))
        ]
        scale = statistics.median(shares) if shares else 1.0
        first[name] = TargetBelief([scale * each for each in work], kinds, [GUESSED] * len(work))
    return Beliefs(first, boundary_bytes(pool.values)).learning(measured)
