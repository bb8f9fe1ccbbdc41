"""`compare`: compare a package's values with the reference, at its outputs and between its kernels."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage.build.verifying.output_check import RANDOM_REASON, ValueJudge, compared_outputs, needed, random_values
from collage.measure.driver.capture import Capture
from collage.measure.models.model_process import ModelProcess
from collage.measure.models.preparing import prepared_apart
from collage.measure.wire.blobs import BlobStore
from collage.prepare.default_inputs import without_defaults
from collage.prepare.shapes import free_inputs
from collage.process_guard import plugins_guarded
from collage.reference import Evaluation
from collage.reference.judge import USUAL_ERROR, Verdict
from collage.report.facts.compare_facts import CompareReport, ValueComparison
from collage.runtime.package import PackagedPlan, load_package
from collage.runtime.package.plan import described
from collage.runtime.packaged_kernels import executable_of, threads_here
from collage.runtime.shapes.opening import session_over
from collage.setup.environment import Environment
from collage.setup.facts import opened
from collage.setup.inputs.random_arrays import Given, load_inputs, random_inputs, sizes_given
from collage.setup.prepared_model import PreparedModel
from collage.setup.settings import PRIVATE, SetupChoices
from collage.setup.targets import check_reference
from collage.temporary_folders import TemporaryFolder
from collage_core.errors import EvaluationError, InputShapeError, UsageError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.size_range import Shape
from collage_core.passes.call_sites import CallSite, call_sites
from collage_core.registry import Registry

_SHOWN_MARGIN = 5.0
_LEAST_RTOL = 1e-5
_MOST_RTOL = USUAL_ERROR
"""Largest default tolerance of a package of exact kernels.

Without `--rtol` such a package is allowed a few times the error it showed when it was verified. Over the model suite
that error is at most 4e-6. Swapping two channels of one weight of ResNet-50 or BERT changes the outputs by 1e-5 to
1e-1, in one case out of five by less than 1e-3. Values of 16 bits differ by whole roundings, so packages that pass such
values between kernels are allowed at least this.
"""
_SHARE = 1e-3
"""Share of integers that may differ without `--rtol`: two correct implementations disagree where scores tie."""


def compare(
    model: str | os.PathLike[str] | onnx_ir.Model,
    package: str | os.PathLike[str],
    *,
    rtol: float | None = None,
    atol: float = 1e-6,
    seed: int = 0,
    inputs: Given | None = None,
    reference: str | None = None,
    input_shapes: Mapping[str, Shape] | None = None,
    registry: Registry | None = None,
) -> CompareReport:
    """Run a package and the reference in this process and compare every value that both produce.

    Args:
        model: Model that the package was made from: an ONNX file, or a model in memory.
        package: Path of the package.
        rtol: Largest error relative to a tensor's scale; for integers, the share of elements that may differ. If
            None, a bound that a correct package of this plan satisfies: a few times the error observed at
            verification, the error that `--max-error` allowed if some of its kernels are not exact, and the error
            that `rounded_problem` allows after a QuantizeLinear.
        atol: Largest absolute difference that passes at any scale.
        seed: Seed of the random inputs.
        inputs: Input values, or the NPZ file that holds them; random arrays if None.
        reference: Toolchain that computes what ONNX's evaluator cannot; the first exact one if None.
        input_shapes: Which plan of a package that has several, and sizes of inputs of a plan for a range.
        registry: Toolchains to use; those the package needs if None.

    Raises:
        CollageError: If a file cannot be used, or the package was not made from this model.
    """
    if reference is not None:
        check_reference(reference, registry or Registry.discover())
    package = Path(package)
    plan = load_package(package).plan_for(input_shapes or {})
    if input_shapes and not plan.holds(input_shapes):
        raise UsageError(f"{package} has a plan for {described(plan.input_shapes)}, not for {described(input_shapes)}")
    given, name, _ = opened(model)
    given = without_defaults(given, _input_names(plan.model))
    other = f"{package} was not made from {name if isinstance(model, onnx_ir.Model) else model}"
    if (theirs := _input_names(plan.model)) != (ours := _input_names(given)):
        raise UsageError(f"{other}: it has the inputs {theirs}, and the model {ours}")
    shapes, free = plan.input_shapes, free_inputs(given)
    try:
        graph = DataflowGraph(prepared_apart(given, {name: shapes[name] for name in shapes if name in free}))
    except InputShapeError as error:  # nobody gave shapes but the package
        raise UsageError(f"{other}: {error}") from error
    sizes = sizes_given(graph, input_shapes or {})
    feeds = load_inputs(graph, inputs) if inputs is not None else random_inputs(graph, seed, sizes=sizes)
    sites = call_sites(plan.model)
    boundaries = {
        str(value.name): site for site in sites for value in site.outputs if value.name and not value.is_graph_output()
    }
    names = {str(value.name) for node in graph.nodes for value in node.outputs}
    unknown = sorted(set(boundaries) - names)
    outputs = [str(value.name) for value in graph.model.graph.outputs]
    if unknown or outputs != [str(value.name) for value in plan.model.graph.outputs]:
        raise UsageError(f"{other}: they do not have the same values")
    evaluation = evaluated(graph, feeds, needed(graph, [*boundaries, *outputs]), reference, registry)
    actual = _run(plan, tuple(boundaries), feeds, registry)
    chance = random_values(graph)
    by_output = {str(value.name): site for site in sites for value in site.outputs}
    limits = _Limits.of(plan, rtol, atol)
    judge = ValueJudge(
        graph,
        evaluation,
        correct=limits.correct,
        relative=limits.rtol,
        mismatched=limits.share,
        is_rounding_allowed=rtol is None,
    )
    values = [
        _judged(key, "boundary", site, judge.verdict(key, actual[key], as_output=False), limits, evaluation.values[key])
        for key, site in boundaries.items()
    ]
    values += [
        _judged(
            key,
            "output",
            by_output.get(key),
            judge.verdict(key, actual[key], as_output=True),
            limits,
            evaluation.values[compared_outputs(graph)[key]],
        )
        for key in outputs
    ]
    return CompareReport(
        model=name,
        package=package.name,
        rtol=limits.rtol,
        atol=atol,
        seed=seed if inputs is None else None,
        values=tuple(values),
        unchecked={
            **evaluation.unchecked,
            **{chance[key]: RANDOM_REASON for key in (*boundaries, *outputs) if key in chance},
        },
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """Tolerances of a comparison.

    Attributes:
        rtol: Largest error of floating-point values relative to their scale.
        share: For all other types, the largest share of elements that differ.
        atol: Largest absolute difference that passes whatever the scale, where values need not be correct.
        correct: Whether values have to be correct, as `Judge` defines it.
    """

    rtol: float
    share: float
    atol: float
    correct: bool = False

    @classmethod
    def of(cls, plan: PackagedPlan, rtol: float | None, atol: float) -> _Limits:
        if rtol is not None:
            return cls(rtol=rtol, share=rtol, atol=atol)
        record = plan.record if isinstance(plan.record, dict) else {}
        allowed = float(record.get("max_error_allowed", 0.0))
        if not all(target.exact for target in plan.targets.values()):
            most = max(allowed, _MOST_RTOL)
            return cls(rtol=most, share=most, atol=atol)
        shown = [float(record.get("max_error", 0.0))]
        shown += [float(region.get("error", 0.0)) for region in record.get("regions", ())]
        passed = (value for site in call_sites(plan.model) for value in site.outputs)
        least = _MOST_RTOL if any(map(_has_16_bits, passed)) else _LEAST_RTOL
        return cls(
            rtol=min(max(_SHOWN_MARGIN * max(shown), least), max(_MOST_RTOL, *shown)),
            share=_SHARE,
            atol=atol,
            correct=True,
        )


@plugins_guarded()
def evaluated(
    graph: DataflowGraph,
    feeds: Mapping[str, Any],
    wanted: Collection[str],
    reference: str | None = None,
    registry: Registry | None = None,
) -> Evaluation:
    """Evaluate a graph with the reference; toolchains are started only if it needs a fallback.

    Args:
        graph: Graph of a prepared model.
        feeds: Input values, by name.
        wanted: Names of the values to return.
        reference: See `compare`.
        registry: The toolchains; those installed if None.

    Raises:
        EvaluationError: If a node cannot be computed.
    """
    with ModelProcess() as models, TemporaryFolder() as folder:
        store = BlobStore(folder)
        try:
            return Capture.take(graph.model, feeds, store, models=models, keep=wanted).evaluation()
        except EvaluationError:
            choices = SetupChoices(reference=reference, tuning_db=PRIVATE)
            with Environment.open(lambda: PreparedModel(graph, feeds), choices, registry=registry) as opened:
                ran = Capture.take(graph.model, feeds, store, models=models, fallback=opened.fallback, keep=wanted)
                return ran.evaluation()


def _run(
    plan: PackagedPlan, boundaries: tuple[str, ...], feeds: Mapping[str, Any], registry: Registry | None
) -> dict[str, Any]:
    """Run a plan and return the values of its outputs and of the tensors passed between its kernels."""
    model = plan.model.clone()
    values = {str(value.name): value for node in model.graph for value in node.outputs}
    model.graph.outputs.extend(values[name] for name in boundaries)
    executable = executable_of(plan, model, threads=threads_here(plan), registry=registry)
    names = [str(value.name) for value in model.graph.outputs]
    return dict(zip(names, session_over(executable).run(None, feeds), strict=True))


def _has_16_bits(value: onnx_ir.Value) -> bool:
    return value.dtype is not None and value.dtype.is_floating_point() and value.dtype.bitwidth == 16


def _judged(
    name: str, place: str, site: CallSite | None, verdict: Verdict, limits: _Limits, expected: Any
) -> ValueComparison:
    """Decide whether a value passes."""
    scale = None if limits.correct else _scale(expected)
    passed = not verdict.problem or (scale is not None and verdict.error * scale <= limits.atol)
    return ValueComparison(
        name=name,
        place=place,
        region=site.name if site is not None else "",
        target=site.target if site is not None else "",
        error=verdict.error,
        passed=passed,
        reason="" if passed else verdict.problem,
    )


def _scale(expected: Any) -> float | None:
    """Return the largest magnitude of a floating-point tensor; None for others, where `atol` does not apply."""
    if isinstance(expected, list | tuple):
        return None
    array = np.asarray(expected)
    if array.dtype.kind != "f" or not array.size:
        return None
    return float(np.abs(array.astype(np.float64)).max())


def _input_names(model: onnx_ir.Model) -> list[str]:
    """Return the names of the inputs that are not constants."""
    return [str(value.name) for value in model.graph.inputs if not value.is_initializer()]
