"""Every layout, transposition, broadcast and epilogue against ONNX's reference: products of all forms, made at random.

They are computed by an emulation that knows only what cuBLAS's documentation says of descriptors.
"""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import numpy as np
import onnx_ir
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from collage_testing.kit.device_checks import check_sub_graphs

from .emulator import Emulator
from .machine import TARGET, emulated, proposals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A product: shapes of what is multiplied, how they are turned, and what follows.

    `factors` are operators with a number, of the first operand, the second and the product; `seen` is the shape of a
    view before what `seen_at` names.
    """

    a: tuple[int, ...]
    b: tuple[int, ...]
    a_order: tuple[int, ...] | None = None
    b_order: tuple[int, ...] | None = None
    bias: bool = False
    residual: tuple[int, ...] | None = None
    activation: str = ""
    factors: tuple[tuple[str, float] | None, ...] = (None, None, None)
    seen: tuple[int, ...] = ()
    seen_at: str = ""

    def model(self) -> onnx_ir.Model:
        g = GraphBuilder("product")
        factors: list[onnx_ir.Value] = []
        for name, shape, order in (("x", self.a, self.a_order), ("z", self.b, self.b_order)):
            held = [0] * len(shape)
            for place, axis in enumerate(order or range(len(shape))):
                held[axis] = shape[place]
            value = g.input(name, *held)
            value = value if order is None else g.op("Transpose", value, perm=list(order))
            factors.append(self.scaled(g, value, len(factors)))
        value = self.scaled(g, g.op("MatMul", *factors), 2)
        if self.bias:
            value = self.viewed(g, value, "bias")
            # without a view at this place the columns of the product
            length = self.seen[-1] if self.seen_at == "bias" else self.b[-1] if len(self.b) > 1 else 1
            value = g.op("Add", value, g.weight("bias", length))
        if self.residual is not None:
            value = g.op("Add", self.viewed(g, value, "residual"), g.input("r", *self.residual))
        if self.activation:
            value = self.viewed(g, value, "activation")
            options = {"approximate": "tanh"} if self.activation == "Gelu" else {}
            value = g.op(self.activation, value, **options)
        return g.model(value)

    def scaled(self, g: GraphBuilder, value: onnx_ir.Value, place: int) -> onnx_ir.Value:
        if (factor := self.factors[place]) is None:
            return value
        return g.op(factor[0], value, g.constant(f"number{place}", np.float32(factor[1])))

    def viewed(self, g: GraphBuilder, value: onnx_ir.Value, place: str) -> onnx_ir.Value:
        return g.op("Reshape", value, g.ints(*self.seen)) if self.seen_at == place else value

    @property
    def has_one_batch_stride(self) -> bool:
        """NumPy's own opinion: whether the batch axes of both factors become one without a copy."""
        if min(len(self.a), len(self.b)) < 2:
            return True
        batch = np.broadcast_shapes(self.a[:-2], self.b[:-2])
        return all(
            _is_one_axis(shape, order, batch) for shape, order in ((self.a, self.a_order), (self.b, self.b_order))
        )


def _is_one_axis(shape: tuple[int, ...], order: tuple[int, ...] | None, batch: tuple[int, ...]) -> bool:
    order = order or tuple(range(len(shape)))
    held = np.zeros([shape[order.index(axis)] for axis in range(len(shape))])
    view = np.broadcast_to(held.transpose(order), (*batch, *shape[-2:]))
    with contextlib.suppress(AttributeError, ValueError):  # what NumPy says where it would have to copy
        return view.reshape(-1, *shape[-2:], copy=False) is not None
    return False


@st.composite
def cases(draw: st.DrawFn) -> Case:
    size = st.sampled_from([1, 2, 3, 5])
    m, n, k = draw(size), draw(size), draw(size)
    batch = draw(st.lists(st.sampled_from([1, 2, 3]), max_size=2))
    shapes = []
    for matrix in ((m, k), (k, n)):
        own = [extent if draw(st.booleans()) else 1 for extent in batch]
        shapes.append((*own[draw(st.integers(0, len(own))) :], *matrix))
    a, b = shapes
    if not batch and draw(st.booleans()):
        a, b = draw(st.sampled_from([((k,), b), (a, (k,)), ((k,), (k,))]))
    orders = [draw(st.none() | st.permutations(range(len(s))).map(tuple)) if len(s) > 1 else None for s in (a, b)]
    result = np.matmul(np.zeros(a), np.zeros(b)).shape
    count = int(np.prod(result))
    seen_at = draw(st.sampled_from(["", "bias", "residual", "activation"]))
    seen: tuple[int, ...] = draw(st.sampled_from([(count,), (1, *result), (*result, 1), result[::-1] or (1,)]))
    shape = seen if seen_at in ("bias", "residual") else result
    residual: Any = draw(st.sampled_from([None, shape, (1,) * len(shape), shape[1:], (*shape[:-1], 1)[: len(shape)]]))
    number = st.none() | st.tuples(st.sampled_from(["Mul", "Div"]), st.sampled_from([0.125, -3.0, 7.0]))
    return Case(
        a=a,
        b=b,
        a_order=orders[0],
        b_order=orders[1],
        bias=seen_at == "bias" or draw(st.booleans()),
        residual=shape if residual is None and seen_at == "residual" else residual,
        activation=draw(st.sampled_from(["Relu", "Gelu"] if seen_at == "activation" else ["", "Relu", "Gelu"])),
        factors=(draw(number), draw(number), draw(number)),
        seen=seen,
        seen_at=seen_at,
    )


# each of these once was wrong, or is what models are made of
@example(Case(a=(2, 4, 3, 8), b=(2, 4, 8, 3), a_order=(0, 2, 1, 3), b_order=(0, 2, 3, 1)))  # attention's two heads
@example(Case(a=(2, 3, 5), b=(5, 2), bias=True, residual=(2, 3, 2), activation="Gelu"))
@example(Case(a=(2, 1, 3, 5), b=(1, 3, 5, 2)))  # one operand repeated inside, the other outside
@example(Case(a=(5,), b=(5, 3), bias=True))
@example(Case(a=(3, 5), b=(5,), residual=(3,)))
@example(Case(a=(3, 2, 4, 5), b=(3, 2, 5, 4), residual=(3, 1, 4, 4)))  # an attention mask
@example(Case(a=(6, 4), b=(4, 5), bias=True, activation="Gelu", seen=(2, 3, 5), seen_at="activation"))  # GPT-2
@example(Case(a=(6, 4), b=(4, 5), bias=True, residual=(2, 3, 5), seen=(2, 3, 5), seen_at="residual"))
@example(Case(a=(6, 4), b=(4, 5), bias=True, seen=(2, 3, 5), seen_at="bias", activation="Relu"))
@example(Case(a=(6, 4), b=(4, 5), residual=(2, 1, 5), seen=(2, 3, 5), seen_at="residual"))  # repeated along rows
@example(Case(a=(2, 3, 4), b=(2, 4, 5), residual=(2, 3, 5), factors=(("Mul", 0.5), ("Div", 3.0), None)))
@example(Case(a=(2, 3, 4), b=(2, 4, 5), bias=True, residual=(3, 5), factors=(None, None, ("Div", 7.0))))
@example(Case(a=(2, 3, 4), b=(2, 4, 5), a_order=(1, 0, 2), factors=(("Mul", 0.5), None, ("Mul", -3.0))))
@example(Case(a=(1,), b=(1,), residual=(), activation="Relu", seen=(1,), seen_at="activation"))  # one number is added
@given(cases())
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_what_is_claimed_is_right_and_nothing_expressible_is_refused(case: Case) -> None:
    model = case.model()
    found = proposals(model)
    check_numbers(model, found.candidates)

    graph = DataflowGraph(model)
    product = next(index for index, node in enumerate(graph.nodes) if node.op_type == "MatMul")
    claimed = {each.sub_graph.label for each in found.candidates if each.sub_graph.nodes >> product & 1}
    plain = Case(a=case.a, b=case.b).has_one_batch_stride
    assert ("cublas.matmul" in claimed) or not plain
    turned = [order for order in (case.a_order, case.b_order) if order is not None]
    swapped = all(sorted(order[-2:]) == [len(order) - 2, len(order) - 1] for order in turned)
    unscaled = case.factors[:2] == (None, None)
    if turned and swapped and case.has_one_batch_stride and unscaled:
        assert "cublas.matmul_transposed" in claimed
    if any(case.factors) and plain:
        assert "cublas.matmul_scaled" in claimed
    if case.seen_at == "activation" and plain and not (case.bias or case.residual is not None or any(case.factors)):
        assert f"cublas.matmul_{case.activation.lower()}_viewed" in claimed
    if case.seen_at == "bias" and len(case.b) > 1 and plain and case.seen[-1] == case.b[-1] and not any(case.factors):
        assert "cublas.matmul_bias_viewed" in claimed


def check_numbers(model: onnx_ir.Model, candidates: Any) -> None:
    emulator = Emulator()
    run = evaluate(model, random_inputs(DataflowGraph(model), seed=0), conditioned=True)
    sub_graphs = [candidate.sub_graph for candidate in candidates]
    check_sub_graphs(emulated(emulator), sub_graphs, run, TARGET, tolerance=1e-4)
    assert not emulator.attributes  # every descriptor was given back


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("third", [None, (4,), (1, 4), (3, 4), (3, 1), ()])
def test_gemm_in_all_its_forms(trans_a: int, trans_b: int, third: tuple[int, ...] | None) -> None:
    g = GraphBuilder("gemm")
    a = g.input("x", *((5, 3) if trans_a else (3, 5)))
    b = g.weight("w", *((4, 5) if trans_b else (5, 4)))
    more = [] if third is None else [g.input("c", *third)]
    beta = 0.5 if third == (3, 4) else 1.0
    model = g.model(g.op("Gemm", a, b, *more, transA=trans_a, transB=trans_b, alpha=2.0, beta=beta))

    found = proposals(model)

    if third in ((3, 1), ()):
        assert "the bias is not one number for each of the 4 columns" in found.refusals[0]
        return
    [candidate] = found.candidates
    labels: dict[tuple[int, ...] | None, str] = {None: "cublas.matmul", (3, 4): "cublas.matmul_residual"}
    assert candidate.sub_graph.label == labels.get(third, "cublas.matmul_bias")
    check_numbers(model, found.candidates)
