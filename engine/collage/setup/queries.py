"""Query the libraries about a whole model, once per model and library version."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping
from typing import ClassVar

from collage.errors import WorkerError
from collage.measure.wire.function_codec import FunctionEncoder
from collage.report.progress import Progress
from collage.setup.toolchains import Toolchains
from collage.store import MAX_ATTEMPTS, BlobSpace, ModelKernels, document_from_bytes, document_to_bytes
from collage_core.candidates.proposals import TargetRule, target_rule
from collage_core.candidates.refusals import Remembered, TargetFailure
from collage_core.contract import Target
from collage_core.errors import CollageError, PluginError, ProcessDamagedError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph

QUERIES = "collage-query"
"""Toolchain of the blobs with answers; their keys begin with the target and the structural hash of the model."""
QUERY_DEADLINE_S = 120.0
"""Seconds a worker has to answer its library's query about a whole model."""
_LEAST_S = 5.0


# These are blobs, not documents of their own, because they belong to a library version: `collage db gc` removes them.


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KnownRefusals:
    """What a library said of a model.

    Attributes:
        refused: Nodes with reasons; by position, because equal models may name their nodes differently.
    """

    KIND: ClassVar[str] = "refusals"
    VERSION: ClassVar[int] = 1

    refused: tuple[tuple[int, str], ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailedQuery:
    """A question that ended the worker, or that it did not answer.

    Attributes:
        deadline_s: Seconds it had.
        reason: What happened.
        created: When, as ISO 8601 with offset.
    """

    KIND: ClassVar[str] = "failed-query"
    VERSION: ClassVar[int] = 2

    deadline_s: float
    reason: str
    created: str


class _KnownError(PluginError):
    """Raised for a question that failed in an earlier run.

    Attributes:
        remembered: When, and with which version of the plugin.
    """

    def __init__(self, toolchain: str, reason: str, remembered: Remembered) -> None:
        super().__init__(toolchain, "collage_query", reason)
        self.remembered = remembered


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Result of phase 1.

    Attributes:
        rules: Each participating target, with its rule and its library's refusals.
        failures: Targets whose plugin failed.
    """

    rules: tuple[TargetRule, ...]
    failures: tuple[TargetFailure, ...]


def ask_targets(graph: DataflowGraph, toolchains: Toolchains, progress: Progress, model: str = "") -> Asked:
    """Return each selected target with its rule and its library's refusals.

    A plugin that fails here costs itself only.

    Args:
        graph: The prepared model's graph.
        toolchains: Those at work.
        progress: Receives failures.
        model: SHA-256 of the model as given; empty if it is unknown.
    """
    whole = SubGraph(graph, graph.all_mask) if graph.needs_kernel else None
    if whole is not None:
        ModelKernels(toolchains.database, model).note([whole.structural_hash])
    rules: list[TargetRule] = []
    failures: list[TargetFailure] = []
    for status in toolchains.statuses:
        for target in status.selected:
            if target.quantises:  # what it takes of the model is what the toolchain takes in the model's own types
                continue
            try:
                query = {} if whole is None else _query(whole, target, toolchains)
                rules.append(target_rule(status.toolchain, target, query))
            except ProcessDamagedError:
                raise
            except CollageError as error:
                remembered = error.remembered if isinstance(error, _KnownError) else None
                failures.append(TargetFailure.of(target, error, remembered))
                progress.message(f"{target.name}: {error}")
    return Asked(rules=tuple(rules), failures=tuple(failures))


def usable_rules(asked: Asked) -> tuple[TargetRule, ...]:
    """Return the rules, of which there is at least one.

    Raises:
        CollageError: If there is none.
    """
    if not asked.rules:
        if not asked.failures:
            raise CollageError("only targets that quantise are left: name their toolchain, too, without precision=int8")
        reasons = "; ".join(f"{each.target.name} ({each.stage}): {each.reason}" for each in asked.failures)
        raise CollageError(f"no toolchain can say what it would take of the model: {reasons}")
    return asked.rules


def _query(whole: SubGraph, target: Target, toolchains: Toolchains) -> dict[int, str]:
    """Return refusals by node index."""
    toolchain = toolchains.registry.toolchains[target.toolchain]
    if not toolchain.implements("collage_query"):
        return {}
    graph = whole.graph
    space = BlobSpace(toolchain=QUERIES, fingerprint=target.fingerprint)
    # what a plugin says belongs to its version, whether it answered or failed
    name = f"{target.name}/{whole.structural_hash}/{toolchains.plugins[target.toolchain]}"
    held = toolchains.database.get_blob(space, name)
    known = None if held is None else document_from_bytes(held, KnownRefusals)
    if known is None:
        deadline_s = toolchains.budget.within(QUERY_DEADLINE_S, least_s=_LEAST_S)
        answer = _answer(whole, target, toolchains, space, f"{name}/failed", deadline_s)
        refused = tuple((index, answer[node]) for index, node in enumerate(graph.names) if node in answer)
        known = KnownRefusals(refused=refused)
        toolchains.database.put_blob(space, name, document_to_bytes(known))
    return dict(known.refused)


def _answer(
    whole: SubGraph, target: Target, toolchains: Toolchains, space: BlobSpace, failed: str, deadline_s: float
) -> Mapping[str, str]:
    """Return the worker's answer to a query.

    A query that crashes the worker is repeated once, as for a candidate's measurement; one that times out is
    not. The failure is then stored in the database.

    Raises:
        PluginError: If the plugin or its worker fails to answer.
    """
    held = toolchains.database.get_blob(space, failed)
    known = None if held is None else document_from_bytes(held, FailedQuery)
    if known is not None and known.deadline_s >= deadline_s and not toolchains.retry_failed:
        remembered = Remembered(since=known.created, plugin=toolchains.plugins[target.toolchain])
        raise _KnownError(target.toolchain, known.reason, remembered)
    function = FunctionEncoder(toolchains.store).encode(kernel_function(whole, "model"))
    attempt = 1
    while True:
        try:
            return toolchains.pool.worker(target.toolchain).query(target, function, deadline_s) or {}
        except WorkerError as error:
            if error.kind == "start":
                raise
            reason = f"worker {error.kind}: {error.reason}"
            if error.kind == "deadline" or attempt == MAX_ATTEMPTS:
                now = datetime.datetime.now(datetime.UTC).isoformat()
                ended = FailedQuery(deadline_s=deadline_s, reason=reason, created=now)
                toolchains.database.put_blob(space, failed, document_to_bytes(ended))
                raise PluginError(target.toolchain, "collage_query", reason) from error
            attempt += 1
