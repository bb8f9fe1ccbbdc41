"""Phases 1 to 4 on a model in memory: no device, no timing, no processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import onnx_ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.explanation import refusals
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals, propose, taken_whole, target_rule
from collage_core.candidates.refusals import Rejection
from collage_core.contract import INVALID, Cost, Host, Unsupported, checked_cost
from collage_core.errors import NoCoverError, PluginError
from collage_core.fusion import (
    CandidateBounds,
    CandidateKernel,
    SubGraph,
    cut_positions,
    kernel_function,
    quantised_groups,
)
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.inference import infer_model
from collage_core.ir.io.model_io import model_from_bytes
from collage_core.passes.apply import apply_partitioning
from collage_core.registry import Toolchain
from collage_testing.mock import MockToolchain
from collage_testing.result import PartitionResult

HOST = Host(system="Mock mock", cpu="mock", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1 << 30)


class ModelProto(Protocol):
    """What `onnx.ModelProto` is here: something that serialises to a model."""

    def SerializeToString(self) -> bytes:  # noqa: N802  protobuf's name
        """The model's bytes."""


def partition(
    model: onnx_ir.Model | ModelProto,
    toolchains: Sequence[MockToolchain],
    *,
    bounds: CandidateBounds | None = None,
    dispatch_us: float = 0.0,
) -> PartitionResult:
    """Finds the least-cost partitioning of a model over mock toolchains, and applies it.

    Every candidate's cost is asked for and the search is exact. A toolchain that offers no target, or whose hooks
    fail, costs its candidates and nothing else.

    Args:
        model: A model in memory; it is not changed. Its nodes stay as they are; shapes are inferred, and constants
            become initializers.
        toolchains: Who may run it.
        bounds: How many candidates to make; those of the default preset if None.
        dispatch_us: What the runtime's loop adds to each kernel.

    Raises:
        NoCoverError: If no plan covers every node; says why not, by toolchain.
        ValueError: If two toolchains have the same name.
    """
    bounds = bounds or CandidateBounds()
    given = model if isinstance(model, onnx_ir.Model) else model_from_bytes(model.SerializeToString())
    graph = DataflowGraph(_indexable(given))
    mocks = {toolchain.name: toolchain for toolchain in toolchains}
    if len(mocks) != len(toolchains):
        raise ValueError(f"toolchains have unique names, not {[toolchain.name for toolchain in toolchains]}")
    costs = _MockCosts(mocks)
    pool = CandidatePool(graph, costs, dispatch_us)
    proposals, unusable = _all_proposals(toolchains, graph, bounds)
    for each in proposals.values():
        for candidate in each.candidates:
            pool.add(candidate)
    try:
        result = pool.engine().run()
    except NoCoverError as error:
        raise error.explained(_why_uncovered(pool, proposals, unusable, error)) from error
    plan = as_plan(pool, "mixed", result, single=False)
    return PartitionResult(
        model=apply_partitioning(plan.partitioning),
        plan=plan,
        exact=result.exact,
        proposals=proposals,
        unusable=unusable,
        _pool=pool,
    )


class _MockCosts:
    """The part of a cost source that a pool asks, answered by mock toolchains."""

    def __init__(self, mocks: Mapping[str, MockToolchain]) -> None:
        self._mocks = mocks

    def key(self, sub_graph: SubGraph) -> str:
        """Equal for the same nodes only: a mock's cost may depend on names."""
        return f"{sub_graph.nodes:x} {sub_graph.label}"

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = False) -> Cost:
        answer = self._mocks[candidate.target.toolchain].cost(candidate)
        return INVALID if isinstance(answer, Unsupported) else checked_cost(answer)

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        answer = self._mocks[candidate.target.toolchain].cost(candidate)
        if isinstance(answer, Unsupported):
            return Rejection(stage="lower", reason=answer.reason)
        return Rejection(stage="lower", reason="its cost is INVALID") if answer == INVALID else None


def _all_proposals(
    toolchains: Sequence[MockToolchain], graph: DataflowGraph, bounds: CandidateBounds
) -> tuple[dict[str, Proposals], dict[str, str]]:
    """What each target proposes, and why toolchains are unusable."""
    groups: tuple[int, ...] = quantised_groups(graph)
    while True:
        cuts = cut_positions(graph, bounds.segments - 1, max_live=bounds.max_live, groups=groups)
        proposals: dict[str, Proposals] = {}
        unusable: dict[str, str] = {}
        for mock in toolchains:
            try:
                answers = _proposals(mock, graph, bounds, cuts, groups)
            except PluginError as error:
                answers = Unsupported(str(error))
            if isinstance(answers, Unsupported):
                unusable[mock.name] = answers.reason
            else:
                proposals.update((each.rule.target.name, each) for each in answers)
        if (whole := taken_whole(groups, proposals.values())) == groups:
            return proposals, unusable
        groups = whole


def _proposals(
    mock: MockToolchain, graph: DataflowGraph, bounds: CandidateBounds, cuts: Sequence[int], groups: Sequence[int]
) -> list[Proposals] | Unsupported:
    toolchain = Toolchain(mock.name, mock)
    targets = toolchain.targets(HOST)
    if isinstance(targets, Unsupported):
        return targets
    found = []
    for target in targets:
        refused: Mapping[str, str] = {}
        if graph.needs_kernel:
            refused = toolchain.query(target, kernel_function(SubGraph(graph, graph.all_mask), "model")) or {}
        by_index = {index: refused[name] for index, name in enumerate(graph.names) if name in refused}
        found.append(propose(target_rule(toolchain, target, by_index), graph, bounds, cuts=cuts, groups=groups))
    return found


def _indexable(model: onnx_ir.Model) -> onnx_ir.Model:
    """A copy in the form `DataflowGraph` takes, its nodes as they are."""
    copy = model.clone()
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    infer_model(copy)
    return copy


def _why_uncovered(
    pool: CandidatePool, proposals: Mapping[str, Proposals], unusable: Mapping[str, str], error: NoCoverError
) -> tuple[str, ...]:
    names = {pool.graph.names[index] for index in error.nodes}
    lines = [f"{name}: {reason}" for name, reason in unusable.items()]
    for fact in refusals(pool, proposals.values()):
        concerned = [name for name in fact.nodes if name in names]
        if concerned:
            lines.append(f"{', '.join(concerned)}: {fact.target}: {fact.reason}")
    return tuple(lines)
