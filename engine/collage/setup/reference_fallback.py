"""Toolchains that compute what the reference cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage.measure.driver.fallback import worker_fallback
from collage.reference import Fallback
from collage.setup.toolchains import Toolchains
from collage_core.errors import EvaluationError, UsageError
from collage_core.ir.graph.dataflow import DataflowGraph

_EVALUATE_DEADLINE_S = 120.0


def reference_fallback(toolchains: Toolchains, graph: DataflowGraph, wanted: str | None) -> Fallback | None:
    """Return what has a toolchain compute the nodes the reference cannot.

    Args:
        toolchains: Those at work.
        graph: The prepared model's graph.
        wanted: A toolchain or target; if None, those that compute in the model's own dtypes, each where those before it
            fail.

    Returns:
        None if nobody was wanted and nobody computes in the model's own dtypes.

    Raises:
        UsageError: If there is none of that name.
    """
    exact = [target for target in toolchains.targets() if target.exact]
    chosen = [target for target in exact if wanted in (None, target.toolchain, target.name)]
    if not chosen and wanted is not None:
        names = ", ".join(target.name for target in exact) or "none"
        raise UsageError(f"--reference {wanted}: choose a target that computes in the model's own dtypes: {names}")
    each = [
        worker_fallback(
            toolchains.pool.worker(target.toolchain),
            graph,
            toolchains.host,
            toolchains.store,
            threads=toolchains.threads,
            deadline_s=_EVALUATE_DEADLINE_S,
            target=target,
        )
        for target in (chosen if wanted is None else chosen[:1])
    ]
    return _first_able(each) if each else None


def _first_able(fallbacks: Sequence[Fallback]) -> Fallback:
    """Ask one after the other; a toolchain that fails costs time, not the reference."""

    def compute(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        reasons: list[str] = []
        for fallback in fallbacks:
            try:
                return fallback(model.clone(), inputs)
            except EvaluationError as error:
                reasons.append(error.reason)
        node = model.graph[0]
        raise EvaluationError(str(node.name), node.op_type, "; ".join(reasons))

    return compute
