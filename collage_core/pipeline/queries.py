"""The libraries' own opinions on a whole model, asked once per model and version."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping

from collage_core.contract import Target
from collage_core.database import MAX_ATTEMPTS, BlobSpace
from collage_core.database.records import dumps, loads
from collage_core.errors import CollageError, PluginError, WorkerError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.function_codec import FunctionEncoder
from collage_core.pipeline.proposals import TargetRule, target_rule
from collage_core.pipeline.workplace import Workplace
from collage_core.report.progress import Progress

QUERY_DEADLINE_S = 120.0
"""Seconds a worker has to say what its library thinks of a whole model."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TargetFailure:
    """A target that takes no part because its plugin failed.

    Attributes:
        target: The target.
        stage: Name of the hook, without its prefix.
        reason: What happened.
    """

    target: Target
    stage: str
    reason: str

    @classmethod
    def of(cls, target: Target, error: CollageError) -> TargetFailure:
        """From what was raised."""
        if isinstance(error, PluginError):
            return cls(target=target, stage=error.hook.removeprefix("collage_"), reason=error.reason)
        return cls(target=target, stage="query", reason=str(error))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Phase 1.

    Attributes:
        rules: Each target that takes part, with its rule and its library's refusals.
        failures: The others.
    """

    rules: tuple[TargetRule, ...]
    failures: tuple[TargetFailure, ...]


def ask_targets(graph: DataflowGraph, workplace: Workplace, progress: Progress) -> Asked:
    """Phase 1: each selected target with its rule and its library's refusals.

    A plugin that fails here costs itself only.

    Args:
        graph: The prepared model's graph.
        workplace: The toolchains.
        progress: Is told of failures.
    """
    whole = SubGraph(graph, graph.all_mask) if graph.needs_kernel else None
    rules: list[TargetRule] = []
    failures: list[TargetFailure] = []
    for offer in workplace.offers:
        for target in offer.selected:
            try:
                query = {} if whole is None else _query(whole, target, workplace)
                rules.append(target_rule(offer.toolchain, target, query))
            except CollageError as error:
                failures.append(TargetFailure.of(target, error))
                progress.message(f"{target.name}: {error}")
    return Asked(rules=tuple(rules), failures=tuple(failures))


def target_rules(graph: DataflowGraph, workplace: Workplace, progress: Progress) -> tuple[TargetRule, ...]:
    """The rules of `ask_targets`.

    Raises:
        CollageError: If no target is left.
    """
    return usable_rules(ask_targets(graph, workplace, progress))


def usable_rules(asked: Asked) -> tuple[TargetRule, ...]:
    """The rules.

    Raises:
        CollageError: If there is none.
    """
    if not asked.rules:
        reasons = "; ".join(f"{each.target.name} ({each.stage}): {each.reason}" for each in asked.failures)
        raise CollageError(f"no toolchain can say what it would take of the model: {reasons}")
    return asked.rules


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
        with contextlib.suppress(ValueError, AttributeError):  # of an import; what is not understood is asked again
            return {int(index): str(reason) for index, reason in loads(known.decode()).items()}
    answer = _answer(whole, target, workplace, space, f"{name}/failed")
    refused = {index: answer[node] for index, node in enumerate(graph.names) if node in answer}
    workplace.database.put_blob(space, name, dumps({str(k): v for k, v in refused.items()}).encode())
    return refused


def _answer(whole: SubGraph, target: Target, workplace: Workplace, space: BlobSpace, failed: str) -> Mapping[str, str]:
    """What the worker says.

    What ends the worker is asked twice, as a candidate would be measured, and what hangs once; then it is remembered.

    Raises:
        PluginError: If the plugin or its worker fails to say.
    """
    known = workplace.database.get_blob(space, failed)
    if known is not None:
        with contextlib.suppress(ValueError, TypeError, KeyError):
            facts = loads(known.decode())
            if facts["deadline_s"] >= QUERY_DEADLINE_S:
                raise PluginError(target.toolchain, "collage_query", str(facts["reason"]))
    function = FunctionEncoder(workplace.store).encode(kernel_function(whole, "model"))
    attempt = 1
    while True:
        try:
            return workplace.pool.worker(target.toolchain).query(target, function, QUERY_DEADLINE_S) or {}
        except WorkerError as error:
            if error.kind == "start":
                raise
            reason = f"worker {error.kind}: {error.reason}"
            if error.kind == "deadline" or attempt == MAX_ATTEMPTS:
                facts = {"deadline_s": QUERY_DEADLINE_S, "reason": reason}
                workplace.database.put_blob(space, failed, dumps(facts).encode())
                raise PluginError(target.toolchain, "collage_query", reason) from error
            attempt += 1
