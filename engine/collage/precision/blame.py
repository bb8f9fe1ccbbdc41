"""Which kernels of a plan its error comes from, and what the bound stopped."""

from __future__ import annotations

import math
from collections.abc import Mapping

from collage.precision.sensitivity.sensitivities import Sensitivities
from collage.report.facts.precision_facts import PrecisionFacts
from collage_core.candidates.plan import Plan
from collage_core.fusion import CandidateKernel


def blamed(plan: Plan, sensitivities: Sensitivities | None) -> Mapping[CandidateKernel, PrecisionFacts]:
    """Return what each kernel of lower precision is expected to do to the outputs.

    Args:
        plan: The plan.
        sensitivities: What each group of products does; None if it was not found out.
    """
    if sensitivities is None:
        return {}
    squares = {kernel: sensitivities.square(kernel) for kernel in plan.kernels if not kernel.target.exact}
    total = sum(squares.values())
    found = {}
    for kernel, square in squares.items():
        graph, inside = kernel.sub_graph.graph, kernel.sub_graph.nodes
        eight = {product.node for product in kernel.sub_graph.int8}
        stopped: tuple[str, ...] = ()
        stopped_error = 0.0
        for number in sensitivities.by_price(kernel.target) if kernel.target.quantises else ():
            more = {each.node for each in sensitivities.groups[number].products if inside >> each.node & 1} - eight
            if more:
                chosen = [n for n, g in enumerate(sensitivities.groups) if n == number or g.nodes & _mask(eight)]
                next_kernel = sensitivities.quantised(graph, inside, kernel.target, chosen)
                stopped = tuple(graph.names[node] for node in sorted(more))
                stopped_error = math.sqrt(total - square + sensitivities.square(next_kernel))
                break
        found[kernel] = PrecisionFacts(
            products=sum(inside >> each.node & 1 for group in sensitivities.groups for each in group.products),
            int8=tuple(graph.names[node] for node in sorted(eight)),
            error=math.sqrt(square),
            share=square / total if total else 0.0,
            stopped=stopped,
            stopped_error=stopped_error,
            weights_alone=kernel.target.quantises_only_weights,
        )
    return found


def _mask(nodes: set[int]) -> int:
    return sum(1 << node for node in nodes)
