"""Phases 1 to 4 on a model in memory, over mock toolchains: no device, no timing, no processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import onnx_ir
from onnx_ir.passes.common import LiftConstantsToInitializersPass

from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.costs import Costs
from collage_core.candidates.explanation import refusals, why_uncovered
from collage_core.candidates.pool import CandidatePool
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.inference import infer_model
from collage_core.ir.io.model_io import model_from_bytes
from collage_core.passes.apply import apply_partitioning
from collage_testing.asking import rules_of
from collage_testing.mock import MockToolchain
from collage_testing.mock_costs import MockCosts
from collage_testing.result import PartitionResult


class ModelProto(Protocol):
    """The part of `onnx.ModelProto` that is used: serialisation to bytes."""

    def SerializeToString(self) -> bytes:  # noqa: N802  protobuf's name
        """Return the model's bytes."""


def partition(
    model: onnx_ir.Model | ModelProto,
    toolchains: Sequence[MockToolchain],
    *,
    bounds: CandidateBounds | None = None,
    dispatch_us: float = 0.0,
) -> PartitionResult:
    """Find the least-cost partitioning of a model over mock toolchains, and apply it.

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
    rules, unusable = rules_of(toolchains, graph)
    proposed = propose_all(rules, graph, bounds)
    unusable = {**unusable, **{each.target.toolchain: f"{each.stage}: {each.reason}" for each in proposed.failures}}
    proposals = {name: each for name, each in proposed.by_target.items() if each.rule.target.toolchain not in unusable}
    pool = CandidatePool(graph, Costs(MockCosts(mocks)), dispatch_us)
    pool = pool.with_candidates(candidate for each in proposals.values() for candidate in each.candidates)
    try:
        result = pool.engine().run()
    except NoCoverError as error:
        facts = refusals(proposals.values(), pool=pool)
        said = [f"{name}: {reason}" for name, reason in unusable.items()]
        raise why_uncovered(error, graph, facts, pool=pool, unusable=said) from error
    plan = as_plan(pool, "mixed", result, single=False)
    return PartitionResult(
        model=apply_partitioning(plan.partitioning),
        plan=plan,
        exact=result.exact,
        proposals=proposals,
        unusable=unusable,
        _pool=pool,
    )


def _indexable(model: onnx_ir.Model) -> onnx_ir.Model:
    """Copy a model to the form `DataflowGraph` takes, with its nodes as they are."""
    copy = model.clone()
    LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0)(copy)
    infer_model(copy)
    return copy
