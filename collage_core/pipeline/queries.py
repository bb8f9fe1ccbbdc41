"""The libraries' own opinions on a whole model, asked once per model and version."""

from __future__ import annotations

from collections.abc import Mapping

from collage_core.contract import Target
from collage_core.database import BlobSpace
from collage_core.database.records import dumps, loads
from collage_core.errors import CollageError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.function_codec import FunctionEncoder
from collage_core.pipeline.proposals import TargetRule, target_rule
from collage_core.pipeline.workplace import Workplace
from collage_core.report.progress import Progress


def target_rules(graph: DataflowGraph, workplace: Workplace, progress: Progress) -> tuple[TargetRule, ...]:
    """Phase 1: each selected target with its rule and its library's refusals.

    A plugin that fails here costs itself only.

    Args:
        graph: The prepared model's graph.
        workplace: The toolchains.
        progress: Is told of failures.

    Raises:
        CollageError: If no target is left.
    """
    whole = SubGraph(graph, graph.all_mask)
    rules, failures = [], []
    for offer in workplace.offers:
        for target in offer.selected:
            try:
                query = _query(whole, target, workplace)
                rules.append(target_rule(offer.toolchain, target, query))
            except CollageError as error:
                failures.append(f"{target.name}: {error}")
                progress.message(failures[-1])
    if not rules:
        raise CollageError(f"no toolchain can say what it would take of the model: {'; '.join(failures)}")
    return tuple(rules)


def _query(whole: SubGraph, target: Target, workplace: Workplace) -> dict[int, str]:
    """Refusals by node index."""
    toolchain = workplace.registry.toolchains[target.toolchain]
    if not toolchain.implements("collage_query"):
        return {}
    graph = whole.graph
    space = BlobSpace(toolchain="collage-query", fingerprint=target.fingerprint)
    name = f"{target.name}/{whole.structural_hash}"
    known = workplace.database.get_blob(space, name)
    # positions, because equal models may name their nodes differently
    if known is not None:
        return {int(index): str(reason) for index, reason in loads(known.decode()).items()}
    function = FunctionEncoder(workplace.store).encode(kernel_function(whole, "model"))
    answer: Mapping[str, str] = workplace.pool.worker(target.toolchain).query(target, function) or {}
    refused = {index: answer[node] for index, node in enumerate(graph.names) if node in answer}
    workplace.database.put_blob(space, name, dumps({str(k): v for k, v in refused.items()}).encode())
    return refused
