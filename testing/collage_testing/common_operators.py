"""One model per common operator, for `check_plugin`: most errors of plugins are in single operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir

from collage_testing.graphs import GraphBuilder

_Case = Callable[[GraphBuilder], onnx_ir.Value | Sequence[onnx_ir.Value]]

_UNARY = ("Abs", "Exp", "Neg", "Relu", "Sigmoid", "Softmax", "Tanh", "Transpose")
_BINARY = ("Add", "Div", "Max", "Mul", "Sub")


def operator_models() -> Mapping[str, onnx_ir.Model]:
    """Build models of one node each, by the case they test.

    Besides each operator in its usual form, they cover easily forgotten cases: broadcasting in both directions,
    one value read twice, integers, half precision, scalars, tensors without elements, several outputs, unused
    outputs, omitted inputs, and a shape that is not known before.
    """
    models = {}
    for name, case in {**_simple(), **_CASES}.items():
        g = GraphBuilder("operator")
        outputs = case(g)
        models[name] = g.model(*([outputs] if isinstance(outputs, onnx_ir.Value) else outputs))
    return models


def _simple() -> dict[str, _Case]:
    cases: dict[str, _Case] = {}
    for op in _UNARY:
        cases[op] = lambda g, op=op: g.op(op, g.input("x", 3, 5))  # type: ignore[misc]  # op is bound early
    for op in _BINARY:
        cases[f"{op} of two inputs"] = lambda g, op=op: g.op(  # type: ignore[misc]
            op, g.input("x", 3, 5), g.input("z", 3, 5)
        )
        cases[f"{op} with a constant row"] = lambda g, op=op: g.op(  # type: ignore[misc]
            op, g.input("x", 2, 3, 5), g.weight("w", 5)
        )
        cases[f"{op} to a constant scalar"] = lambda g, op=op: g.op(  # type: ignore[misc]
            op, g.constant("w", np.float32(2)), g.input("x", 3, 5)
        )
    return cases


def _squared(g: GraphBuilder) -> onnx_ir.Value:
    value = g.input("x", 3, 5)
    return g.op("Mul", value, value)


_CASES: Mapping[str, _Case] = {
    "Mul of a value by itself": _squared,
    "Add of integers": lambda g: g.op(
        "Add", g.input("x", 3, 5, dtype=onnx_ir.DataType.INT64), g.constant("w", np.arange(5))
    ),
    "Relu in half precision": lambda g: g.op("Relu", g.input("x", 3, 5, dtype=onnx_ir.DataType.FLOAT16)),
    "Relu of nothing": lambda g: g.op("Relu", g.input("x", 0, 5)),
    "Exp of a scalar": lambda g: g.op("Exp", g.input("x")),
    "Cast": lambda g: g.op("Cast", g.input("x", 3, 5), to=int(onnx_ir.DataType.INT32)),
    "MatMul": lambda g: g.op("MatMul", g.input("x", 4, 16), g.weight("w", 16, 8)),
    "MatMul of two inputs": lambda g: g.op("MatMul", g.input("x", 2, 4, 16), g.input("z", 2, 16, 8)),
    "Gemm": lambda g: g.op("Gemm", g.input("x", 4, 16), g.weight("w", 8, 16), g.weight("b", 8), transB=1),
    "Conv": lambda g: g.op(
        "Conv", g.input("x", 1, 4, 9, 9), g.weight("w", 8, 4, 3, 3), g.weight("b", 8), pads=[1, 1, 1, 1]
    ),
    "Conv by channel": lambda g: g.op(
        "Conv", g.input("x", 1, 4, 9, 9), g.weight("w", 4, 1, 3, 3), group=4, strides=[2, 2]
    ),
    "MaxPool": lambda g: g.op("MaxPool", g.input("x", 1, 4, 9, 9), kernel_shape=[3, 3], strides=[2, 2]),
    "Concat": lambda g: g.op("Concat", g.input("x", 3, 5), g.input("z", 3, 2), axis=1),
    "Split": lambda g: g.ops("Split", 2, g.input("x", 4, 6), axis=1, num_outputs=2),
    "TopK, one output not wanted": lambda g: g.ops("TopK", 2, g.input("x", 4, 6), g.ints(2))[0],
    "Clip, one input left out": lambda g: g.op("Clip", g.input("x", 3, 5), None, g.constant("most", np.float32(0.5))),
    "NonZero, its shape not known before": lambda g: g.op("NonZero", g.input("x", 3, 5)),
}
