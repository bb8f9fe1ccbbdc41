"""Whether a target takes a whole function as one kernel."""

from __future__ import annotations

from collage.process_guard import plugins_guarded
from collage.setup.targets import ON_REQUEST
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import KernelFunction, Target
from collage_core.errors import CollageError
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.registry import Toolchain


@plugins_guarded()
def refusal_of(toolchain: Toolchain, target: Target, function: KernelFunction) -> str:
    """Return why a target does not take a function as one kernel, by its predicates and patterns; empty if it does.

    The built-in reference evaluates one node after the other, so it takes any function of operators that it takes.
    """
    try:
        graph = DataflowGraph(function.model)
        proposals = propose(target_rule(toolchain, target, {}), graph, CandidateBounds.preset("extensive"))
    except CollageError as error:
        return str(error)
    missing = graph.needs_kernel & ~proposals.covered
    if missing:
        index = next(iterate_bits(missing))
        return proposals.refusals.get(index, f"it takes no {graph.nodes[index].op_type}")
    whole = any(not graph.needs_kernel & ~each.sub_graph.nodes for each in proposals.candidates)
    return "" if whole or target.toolchain in ON_REQUEST else "it does not take these operators as one kernel"
