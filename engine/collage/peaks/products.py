"""The fastest product of large matrices by the installed toolchains, measured as any candidate is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import onnx_ir

from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.outcomes import Tolerance
from collage.peaks.machine_peaks import ProductSpeed, side_of
from collage.prepare.opset import TARGET_OPSET
from collage.setup.environment import Environment
from collage.setup.prepared_model import PreparedModel
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage.store import Purpose
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import PRECISIONS, Target
from collage_core.fusion import CandidateBounds, CandidateKernel
from collage_core.ir.graph.dataflow import DataflowGraph

DTYPES = {
    "float32": onnx_ir.DataType.FLOAT,
    "float64": onnx_ir.DataType.DOUBLE,
    "float16": onnx_ir.DataType.FLOAT16,
    "bfloat16": onnx_ir.DataType.BFLOAT16,
}
"""Element type of the matrices by arithmetic; 8-bit integers have products of their own."""

_TOLERANCE = Tolerance(relative=0.05, mismatched=0.05)
"""Of a product whose operands are rounded to 8 significant bits; it decides about nothing but this figure."""
_DEADLINE_S = 30.0


def fastest_product(
    arithmetic: str, toolchains: Toolchains, choices: SetupChoices, targets: Sequence[Target], *, again: bool = False
) -> ProductSpeed | None:
    """Return the fastest product of some targets on the CPU; None if there is none.

    Outcomes are tuning records like any other, so each is measured once.

    Args:
        arithmetic: One of `DTYPES`, or `"int8"`.
        toolchains: Those at work.
        choices: How candidates are measured.
        targets: Those to ask: a target that crashes or hangs should not be.
        again: Whether to take further samples where there are some.

    Raises:
        CollageError: If something but a candidate fails.
    """
    plain = dataclasses.replace(choices, measuring=lambda threads: _settings(choices.measuring(threads)))
    side = side_of(toolchains.threads)
    best: ProductSpeed | None = None
    for model, computes in _models(arithmetic, side) if targets else ():
        fitting = [target for target in targets if computes(target)]
        for target, time_us in _times(model, toolchains, plain, fitting, "confirm" if again else "select"):
            speed = 2.0 * side**3 / time_us
            if best is None or speed > best.flops_per_us:
                best = ProductSpeed(arithmetic=arithmetic, flops_per_us=speed, by=target.name)
    return best


def precision_of(target: Target) -> onnx_ir.DataType | None:
    """Return the type that a target rounds the operands of products to; None if it leaves them as they are.

    Of a target that quantises it is the type of the products that are not quantised.
    """
    return None if target.exact else PRECISIONS.get(target.rounded_precision)


def _settings(settings: MeasureSettings) -> MeasureSettings:
    return dataclasses.replace(
        settings,
        tolerance=_TOLERANCE,
        inexact_kernel_tolerance=_TOLERANCE,
        deadline_s=min(_DEADLINE_S, settings.deadline_s),
    )


def _times(
    model: PreparedModel, toolchains: Toolchains, choices: SetupChoices, targets: Sequence[Target], purpose: Purpose
) -> Iterator[tuple[Target, float]]:
    """Yield the fastest block of runs of a model by each target that takes it as one kernel."""
    environment = Environment(model, toolchains, choices)
    graph, source = environment.graph, environment.source
    candidates: list[CandidateKernel] = []
    for target in targets:
        rule = target_rule(toolchains.registry.toolchains[target.toolchain], target, {})
        proposed = propose(rule, graph, CandidateBounds.preset("quick")).candidates
        candidates += [each for each in proposed if each.sub_graph.nodes == graph.all_mask][:1]
    source.measure(candidates, purpose)
    for candidate in candidates:
        medians_us = source.medians_us(candidate)
        if medians_us and source.rejection(candidate) is None:
            yield candidate.target, min(medians_us)


def _models(arithmetic: str, side: int) -> Iterable[tuple[PreparedModel, Callable[[Target], bool]]]:
    """Yield models that multiply in an arithmetic, each with which targets do so on it."""
    generator = np.random.default_rng(0)
    if arithmetic == "int8":
        left = generator.integers(0, 256, (side, side), dtype=np.uint8)
        # 7 bits: without VNNI, x86 adds two products of 8 bits in 16, which 8-bit weights overflow
        right = generator.integers(-64, 64, (side, side), dtype=np.int8)
        yield _model("MatMulInteger", left, right, onnx_ir.DataType.INT32), lambda target: target.exact
        return
    dtype = DTYPES[arithmetic]
    left, right = (generator.standard_normal((side, side)) / np.sqrt(side) for _ in range(2))
    kind = dtype.numpy()
    yield _model("MatMul", left.astype(kind), right.astype(kind), dtype), lambda target: target.exact
    if dtype in PRECISIONS.values():
        single = _model("MatMul", left.astype(np.float32), right.astype(np.float32), onnx_ir.DataType.FLOAT)
        yield single, lambda target: precision_of(target) == dtype


def _model(operator: str, left: np.ndarray, right: np.ndarray, result: onnx_ir.DataType) -> PreparedModel:
    """Return a model that multiplies its input by a constant, as most products of models do."""
    x = onnx_ir.val("x", onnx_ir.DataType.from_numpy(left.dtype), left.shape)
    weight = onnx_ir.val("weight", const_value=onnx_ir.tensor(right, name="weight"))
    y = onnx_ir.val("y", result, (left.shape[0], right.shape[1]))
    node = onnx_ir.node(operator, [x, weight], outputs=[y], name="product")
    graph = onnx_ir.Graph(
        [x], [y], nodes=[node], initializers=[weight], opset_imports={"": TARGET_OPSET}, name="product"
    )
    return PreparedModel(DataflowGraph(onnx_ir.Model(graph, ir_version=10)), {"x": left})
