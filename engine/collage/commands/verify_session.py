"""Compare what a loaded package computes with the reference, which the package holds all it needs for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx_ir.passes.common import InlinePass

from collage.build.verifying.output_check import needed
from collage.build.verifying.verify import largest_error
from collage.commands.compare import evaluated
from collage.errors import VerificationError
from collage.measure.wire.outcomes import Tolerance
from collage.runtime.package import PackagedPlan
from collage.runtime.session import Session
from collage.setup.inputs.random_arrays import Given, load_inputs, random_inputs
from collage_core.ir.graph.dataflow import DataflowGraph

_RUNS = 5
"""Runs that are compared: what two threads race for goes wrong from time to time."""
_SEED = 2
"""Seed of inputs that an optimization with the default seed did not see."""


def verify_session(session: Session, plan: PackagedPlan, threads: int, inputs: Given | None = None) -> None:
    """Run a session several times, compare its outputs with those of the reference, and note that it was verified.

    Args:
        session: The plan, loaded.
        plan: The plan that it runs; its model is what the reference computes.
        threads: CPU threads of each kernel, for messages.
        inputs: Input values, or the NPZ file that holds them; random ones if None.

    Raises:
        FeedError: If the inputs do not fit.
        EvaluationError: If neither the reference nor an installed toolchain computes the model.
        VerificationError: If an output is wrong.
    """
    model = plan.model.clone()
    InlinePass()(model)
    graph = DataflowGraph(model)
    samples = [random_inputs(graph, _SEED) if inputs is None else load_inputs(graph, inputs)]
    if inputs is None:  # what is right for one size may be wrong for another
        samples += [random_inputs(graph, _SEED, sizes=sizes) for sizes in graph.end_sizes]
    for feeds in samples:
        _verify_on(feeds, session, plan, graph, threads)
    session.verified = True


def _verify_on(
    feeds: Mapping[str, Any], session: Session, plan: PackagedPlan, graph: DataflowGraph, threads: int
) -> None:
    names = [output.name for output in session.get_outputs()]
    right = evaluated(graph, feeds, needed(graph, names))
    correct = all(target.exact for target in plan.targets.values())
    for _ in range(_RUNS):
        made = dict(zip(names, session.run(None, feeds), strict=True))
        try:
            largest_error(graph, made, right, correct=correct, tolerance=_tolerance(plan))
        except VerificationError as error:
            with_threads = f"{threads} thread" if threads == 1 else f"{threads} threads"
            other = plan.manifest.threads
            advice = "Optimize the model again" + (
                f" with --threads {threads}, or load it with {other}, as it was verified." if threads != other else "."
            )
            raise VerificationError(f"{plan.path!r} with {with_threads} is wrong: {error}. {advice}") from error


def _tolerance(plan: PackagedPlan) -> float:
    """Return the largest error that the plan's kernels were allowed."""
    exact = Tolerance().relative
    if all(target.exact for target in plan.targets.values()):
        return exact
    record = plan.record if isinstance(plan.record, Mapping) else {}
    return max(exact, float(record.get("max_error_allowed", 0.0)))
