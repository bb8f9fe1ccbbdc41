"""Kernels of runs of a model's nodes, on each target whose precision is decided by region, and what they may take."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Final

from collage.precision.sensitivity.groups import flops_of
from collage.precision.sensitivity.sensitivities import Sensitivities
from collage_core.candidates.pool import CandidatePool
from collage_core.fusion import CandidateKernel, cut_positions
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.graph.work import estimated_work_us

_CUTS: Final = 5
"""Positions between which a target may take over from another: with them there are 21 runs of nodes."""
_KERNEL_US: Final = 10.0
"""What a kernel of its own is guessed to take beside its share of the whole model's time."""
_SAVED: Final = 0.6
"""Share of a product's time in float32 that 8-bit integers are guessed to save."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A kernel of some of the nodes.

    Attributes:
        candidate: The kernel.
        guess_us: What it is guessed to take.
    """

    candidate: CandidateKernel
    guess_us: float


def segments(
    pool: CandidatePool, wholes: Sequence[tuple[CandidateKernel, float]], sensitivities: Sensitivities
) -> Iterator[Segment]:
    """Yield kernels of runs of nodes, like the kernels for the whole model of which it is known what they take.

    A target that quantises gets each run in two forms: with what it quantises of the whole model, and with everything.

    Args:
        pool: The model's graph.
        wholes: Kernels for the whole model, with their costs in microseconds.
        sensitivities: The groups of products.
    """
    graph, work = pool.graph, estimated_work_us(pool.graph)
    ends = [0, *cut_positions(graph, _CUTS), len(graph)]
    total = sum(work[index] for index in iterate_bits(pool.whole)) or 1.0
    for first, last in itertools.combinations(ends, 2):
        nodes = graph.completed(mask_of(range(first, last)))
        if not nodes & graph.needs_kernel or nodes == pool.whole:
            continue
        share = sum(work[index] for index in iterate_bits(nodes & graph.needs_kernel)) / total
        for whole, cost_us in wholes:
            guess_us = share * cost_us + _KERNEL_US
            chosen = _groups_in(whole, sensitivities)
            made = sensitivities.quantised(graph, nodes, whole.target, chosen)
            yield Segment(candidate=made, guess_us=guess_us)
            everything = sensitivities.by_price(whole.target)
            if whole.target.quantises and len(chosen) < len(everything):
                more = _share_of_flops(sensitivities, nodes, set(everything) - set(chosen))
                made = sensitivities.quantised(graph, nodes, whole.target, everything)
                yield Segment(candidate=made, guess_us=guess_us * (1 - _SAVED * more))


def _groups_in(candidate: CandidateKernel, sensitivities: Sensitivities) -> list[int]:
    eight = {product.node for product in candidate.sub_graph.int8}
    return [n for n, group in enumerate(sensitivities.groups) if group.products[0].node in eight]


def _share_of_flops(sensitivities: Sensitivities, nodes: int, numbers: set[int]) -> float:
    """Return the share of the operations of the products among some nodes that are in some groups."""
    groups = sensitivities.groups
    inside = mask_of(number for number, group in enumerate(groups) if group.nodes & nodes)
    return flops_of(groups, inside & mask_of(numbers)) / (flops_of(groups, inside) or 1.0)
