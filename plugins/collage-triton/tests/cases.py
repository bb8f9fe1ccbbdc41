"""Every operator claimed, in every type it is claimed for, on awkward shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import KernelFunction
from collage_testing import GraphBuilder

from .checking import function_of

D = onnx_ir.DataType
FLOATS = (D.FLOAT, D.FLOAT16, D.BFLOAT16)
INTEGERS = (D.INT64, D.INT32, D.INT8, D.UINT8)
SIGNED = (D.INT64, D.INT32, D.INT8)
ALL = (*FLOATS, *INTEGERS)
Build = Callable[[GraphBuilder, D], Any]


def unary(op: str, shape: Sequence[int] = (3, 7), **attributes: Any) -> Build:
    return lambda g, dtype: g.op(op, g.input("x", *shape, dtype=dtype), **attributes)


def positive(op: str) -> Build:
    """Of a number above one."""

    def build(g: GraphBuilder, dtype: D) -> Any:
        x = g.input("x", 3, 7, dtype=dtype)
        return g.op(op, g.op("Add", g.op("Mul", x, x), number(g, dtype, 1)))

    return build


def number(g: GraphBuilder, dtype: D, value: float) -> Any:
    return g.constant(f"c{g.count}", np.array(value).astype(dtype.numpy()))


def binary(op: str, **attributes: Any) -> Build:
    """Both ways of broadcasting in one node."""
    return lambda g, dtype: g.op(op, g.input("x", 3, 1, 5, dtype=dtype), g.input("z", 2, 5, dtype=dtype), **attributes)


def data(op: str, *shape: int, **attributes: Any) -> Build:
    """An operator whose other inputs are integers, given as lists among the attributes `i1`, `i2`, ..."""
    places = sorted(name for name in attributes if name[0] == "i" and name[1:].isdigit())
    rest = {name: value for name, value in attributes.items() if name not in places}

    def build(g: GraphBuilder, dtype: D) -> Any:
        inputs = [None if attributes[name] is None else g.ints(*attributes[name]) for name in places]
        return g.op(op, g.input("x", *shape, dtype=dtype), *inputs, **rest)

    return build


def reduced(op: str) -> tuple[Build, ...]:
    return (
        data(op, 3, 7, i1=[1], keepdims=0),
        data(op, 2, 3, 5, i1=[0, -1], keepdims=1),
        data(op, 3, 2),
        data(op, 1, 3, i1=[1]),
    )


def normalised(op: str, bias: bool, shape: Sequence[int] = (3, 7), **attributes: Any) -> Build:
    def build(g: GraphBuilder, dtype: D) -> Any:
        extent = shape[1] if op in ("InstanceNormalization", "GroupNormalization", "BatchNormalization") else shape[-1]
        random = np.random.default_rng(1)
        vectors = [
            g.constant(f"v{place}", (0.5 + random.random(extent)).astype(dtype.numpy()))
            for place in range(4 if op == "BatchNormalization" else 1 + bias)
        ]
        value = g.op(op, g.input("x", *shape, dtype=dtype), *vectors, **attributes)
        value.dtype, value.shape = dtype, onnx_ir.Shape(shape)  # ONNX infers nothing of GroupNormalization
        return value

    return build


def chosen(op: str, **attributes: Any) -> Build:
    def build(g: GraphBuilder, dtype: D) -> Any:
        indices = g.constant("i", np.array([[2, -1, 0], [1, 1, 2], [0, -3, 2]], np.int64))
        return g.op(op, g.input("x", 3, 3, dtype=dtype), indices, **attributes)

    return build


def gathered_by_input(g: GraphBuilder, dtype: D) -> Any:
    return g.op("Gather", g.weight("w", 8, 5), g.op("Abs", g.input("i", 2, 3, dtype=D.INT32)))


def clipped(low: float | None, high: float | None) -> Build:
    return lambda g, dtype: g.op(
        "Clip",
        g.input("x", 3, 7, dtype=dtype),
        None if low is None else number(g, dtype, low),
        None if high is None else number(g, dtype, high),
    )


def cast(to: D) -> Build:
    return lambda g, dtype: g.op("Cast", g.input("x", 3, 7, dtype=dtype), to=int(to))


def power(exponent: float) -> Build:
    return lambda g, dtype: g.op("Pow", g.input("x", 3, 7, dtype=dtype), number(g, dtype, exponent))


def matmul(left: Sequence[int], right: Sequence[int]) -> Build:
    return lambda g, dtype: g.op("MatMul", g.input("a", *left, dtype=dtype), g.input("b", *right, dtype=dtype))


def gemm(left: Sequence[int], right: Sequence[int], **attributes: Any) -> Build:
    return lambda g, dtype: g.op(
        "Gemm",
        g.input("a", *left, dtype=dtype),
        g.input("b", *right, dtype=dtype),
        g.input("c", 7, dtype=dtype),
        **attributes,
    )


def conv(shape: Sequence[int], weight: Sequence[int], **attributes: Any) -> Build:
    return lambda g, dtype: g.op(
        "Conv",
        g.input("x", *shape, dtype=dtype),
        g.input("w", *weight, dtype=dtype),
        g.input("b", weight[0], dtype=dtype),
        **attributes,
    )


def turned(shape: Sequence[int], weight: Sequence[int], **attributes: Any) -> Build:
    return lambda g, dtype: g.op(
        "ConvTranspose",
        g.input("x", *shape, dtype=dtype),
        g.input("w", *weight, dtype=dtype),
        g.input("b", weight[1], dtype=dtype),
        **attributes,
    )


def where(g: GraphBuilder, dtype: D) -> Any:
    return g.op(
        "Where", g.input("c", 3, 1, dtype=D.BOOL), g.input("x", 7, dtype=dtype), g.input("z", 3, 7, dtype=dtype)
    )


def mask(g: GraphBuilder, dtype: D) -> Any:
    """What attention adds to its scores: minus infinity, or the least number there is, where nothing is to be seen."""
    least = -np.inf if dtype in FLOATS else np.iinfo(dtype.numpy()).min if dtype in INTEGERS else True
    return g.op("Where", g.input("c", 3, 7, dtype=D.BOOL), number(g, dtype, least), number(g, dtype, 0))


def odd_numbers(op: str, **attributes: Any) -> Build:
    """Of infinities and of what is no number."""

    def build(g: GraphBuilder, dtype: D) -> Any:
        odd = g.constant("odd", np.array([np.inf, -np.inf, np.nan, 1, -1], dtype.numpy()))
        return g.op(op, g.op("Mul", g.input("x", 3, 1, dtype=dtype), odd), **attributes)

    return build


CASES: Mapping[str, tuple[tuple[D, ...], tuple[Build, ...]]] = {
    **{
        name: (FLOATS, (unary(name),))
        for name in [
            "Asinh",
            "Ceil",
            "Cos",
            "Cosh",
            "Erf",
            "Exp",
            "Floor",
            "Gelu",
            "HardSigmoid",
            "HardSwish",
            "Mish",
            "Reciprocal",
            "Round",
            "Selu",
            "Sigmoid",
            "Sin",
            "Sinh",
            "Softplus",
            "Softsign",
            "Tan",
            "Tanh",
        ]
    },
    **{name: (FLOATS, (positive(name),)) for name in ("Acosh", "Log", "Sqrt")},
    **{name: (ALL, (binary(name),)) for name in ("Add", "Max", "Min", "Mul", "Sub", "Div")},
    **{
        name: ((*FLOATS, D.INT64, D.INT32), (binary(name),))
        for name in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual")
    },
    **{name: ((D.BOOL,), (binary(name),)) for name in ("And", "Or", "Xor")},
    **{name: (INTEGERS, (binary(name),)) for name in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{name: (FLOATS, reduced(name)) for name in ("ReduceL2", "ReduceLogSumExp", "ReduceMean")},
    **{name: ((*FLOATS, D.INT64, D.INT32), reduced(name)) for name in ("ReduceL1", "ReduceProd", "ReduceSum")},
    "ReduceSumSquare": ((*FLOATS, D.INT64), reduced("ReduceSumSquare")),
    **{name: ((*FLOATS, D.INT64, D.INT32, D.INT8, D.UINT8), (*reduced(name),)) for name in ("ReduceMax", "ReduceMin")},
    **{
        name: (
            (D.FLOAT, D.FLOAT16, D.INT32),
            (
                unary(name, axis=1, keepdims=0),
                unary(name, (2, 3, 5), axis=0),
                unary(name, axis=-1, select_last_index=1),
            ),
        )
        for name in ("ArgMax", "ArgMin")
    },
    "Abs": (ALL, (unary("Abs"),)),
    "Atanh": (
        FLOATS,
        (lambda g, d: g.op("Atanh", g.op("Mul", g.op("Tanh", g.input("x", 3, 7, dtype=d)), number(g, d, 0.9))),),
    ),
    "BatchNormalization": (FLOATS, (normalised("BatchNormalization", True, (2, 3, 5)),)),
    "BitwiseNot": (INTEGERS, (unary("BitwiseNot"),)),
    "Cast": (
        (*FLOATS, D.INT64, D.INT32, D.BOOL),
        tuple(cast(to) for to in (D.FLOAT, D.FLOAT16, D.BFLOAT16, D.INT64, D.INT32, D.BOOL)),
    ),
    "CastLike": (
        (D.FLOAT, D.INT64),
        (lambda g, d: g.op("CastLike", g.input("x", 3, 7, dtype=d), number(g, D.FLOAT16, 1)),),
    ),
    "Celu": ((D.FLOAT,), (unary("Celu", alpha=1.5),)),
    "Clip": ((*FLOATS, D.INT64, D.INT32), (clipped(-1, 2), clipped(None, 1), clipped(-1, None))),
    "Concat": (
        (*ALL, D.BOOL),
        (
            lambda g, d: g.op("Concat", *(g.input(f"x{n}", 3, n, 2, dtype=d) for n in (1, 0, 3, 5)), axis=1),
            lambda g, d: g.op("Concat", g.input("a", 2, 3, dtype=d), g.input("b", 1, 3, dtype=d), axis=-2),
        ),
    ),
    "DepthToSpace": (
        (D.FLOAT, D.INT8),
        (
            unary("DepthToSpace", (1, 8, 3, 2), blocksize=2),
            unary("DepthToSpace", (2, 9, 1, 2), blocksize=3, mode="CRD"),
        ),
    ),
    "Conv": (
        FLOATS,
        (
            conv((2, 3, 7, 5), (5, 3, 3, 3), pads=[1, 0, 1, 2], strides=[2, 1]),
            conv((1, 4, 9), (6, 2, 3), group=2, dilations=[2]),
            conv((2, 3, 5, 5), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]),
            conv((1, 3, 5, 4), (1, 3, 1, 1)),
            conv((1, 2, 6, 5), (4, 2, 3, 2), auto_pad="SAME_LOWER", strides=[2, 2]),
        ),
    ),
    "ConvTranspose": (
        (D.FLOAT, D.FLOAT16),
        (
            turned((2, 3, 5, 4), (3, 6, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1]),
            turned((1, 4, 5), (4, 2, 3), strides=[3], dilations=[2], output_padding=[1]),
            turned((1, 2, 3, 3), (2, 1, 3, 2)),
        ),
    ),
    "AveragePool": (
        (D.FLOAT, D.FLOAT16),
        (
            unary("AveragePool", (2, 3, 7, 5), kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 1]),
            unary("AveragePool", (1, 2, 7, 7), kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
            unary("AveragePool", (1, 2, 7, 7), kernel_shape=[8, 8], strides=[8, 8], ceil_mode=1),
            unary("AveragePool", (1, 2, 4, 5, 3), kernel_shape=[2, 2, 2]),
            unary("AveragePool", (1, 2, 5, 6), kernel_shape=[2, 3], auto_pad="SAME_UPPER"),
        ),
    ),
    "MaxPool": (
        (D.FLOAT, D.FLOAT16, D.INT8, D.UINT8),
        (
            unary("MaxPool", (2, 3, 7, 5), kernel_shape=[3, 2], pads=[1, 0, 1, 1], strides=[2, 2]),
            unary("MaxPool", (1, 2, 8, 7), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            unary("MaxPool", (1, 2, 4, 5, 3), kernel_shape=[2, 2, 2], strides=[1, 2, 1]),
            unary("MaxPool", (1, 2, 9), kernel_shape=[3], dilations=[2], pads=[1, 1]),
        ),
    ),
    "Gemm": (FLOATS, (gemm((5, 19), (19, 7)), gemm((19, 5), (7, 19), transA=1, transB=1, alpha=0.5, beta=2.0))),
    "MatMul": (
        FLOATS,
        (
            matmul((17, 19), (19, 21)),
            matmul((2, 1, 3, 20), (3, 20, 5)),
            matmul((2, 3, 5), (5, 2)),
            matmul((1, 33), (33, 18)),
            matmul((18, 33), (33, 1)),
        ),
    ),
    "Dropout": ((D.FLOAT,), (unary("Dropout"),)),
    "Elu": (FLOATS, (unary("Elu", alpha=0.7),)),
    "Equal": ((*FLOATS, D.INT64, D.INT32, D.BOOL), (binary("Equal"),)),
    "Expand": ((*ALL, D.BOOL), (data("Expand", 3, 1, i1=[2, 3, 5]), data("Expand", 2, 1, 5, i1=[1]))),
    "Flatten": (
        (D.FLOAT,),
        (lambda g, d: g.op("Neg", g.op("Flatten", g.op("Exp", g.input("x", 2, 3, 5, dtype=d)), axis=2)),),
    ),
    "Gather": (
        (D.FLOAT, D.INT64, D.BOOL),
        (chosen("Gather"), chosen("Gather", axis=1), data("Gather", 5, 3, i1=[4, -5]), gathered_by_input),
    ),
    "GatherElements": ((D.FLOAT, D.INT32), (chosen("GatherElements", axis=1), chosen("GatherElements"))),
    "GlobalAveragePool": (FLOATS, (unary("GlobalAveragePool", (2, 3, 5, 3)),)),
    "GlobalMaxPool": (FLOATS, (unary("GlobalMaxPool", (2, 3, 7, 1)),)),
    "GroupNormalization": (FLOATS, (normalised("GroupNormalization", True, (2, 6, 5), num_groups=3),)),
    "Identity": ((*ALL, D.BOOL), (unary("Identity"),)),
    "InstanceNormalization": (FLOATS, (normalised("InstanceNormalization", True, (2, 3, 5)),)),
    "IsInf": ((D.FLOAT,), (odd_numbers("IsInf"), odd_numbers("IsInf", detect_negative=0))),
    "IsNaN": (FLOATS, (odd_numbers("IsNaN"),)),
    "LayerNormalization": (
        FLOATS,
        (normalised("LayerNormalization", True), normalised("LayerNormalization", False, (2, 3, 5), axis=-1)),
    ),
    "LeakyRelu": (FLOATS, (unary("LeakyRelu", alpha=0.3),)),
    "LogSoftmax": (FLOATS, (unary("LogSoftmax"), unary("LogSoftmax", (2, 3, 5), axis=1))),
    "Mean": (FLOATS, (lambda g, d: g.op("Mean", *(g.input(f"x{n}", n, 5, dtype=d) for n in (3, 1, 3))),)),
    "Mod": ((D.INT64, D.INT32, D.INT8, D.UINT8), (binary("Mod"), binary("Mod", fmod=1))),
    "Neg": ((*FLOATS, *SIGNED), (unary("Neg"),)),
    "Not": ((D.BOOL,), (unary("Not"),)),
    "PRelu": (FLOATS, (lambda g, d: g.op("PRelu", g.input("x", 2, 3, 5, dtype=d), g.input("s", 3, 1, dtype=d)),)),
    "Pad": (
        (D.FLOAT, D.INT64, D.BOOL),
        (
            data("Pad", 3, 5, i1=[1, 0, 2, 3]),
            data("Pad", 3, 5, i1=[0, -1, 1, 2]),
            data("Pad", 3, 5, i1=[2, 1, 0, 3], mode="edge"),
            data("Pad", 0, 2, i1=[1, 0, 1, 0]),
        ),
    ),
    "Pow": (
        FLOATS,
        (
            power(2),
            power(3),
            power(-1),
            power(2.5),
            lambda g, d: g.op("Pow", g.input("x", 3, 7, dtype=d), g.op("Round", g.input("z", 7, dtype=d))),
        ),
    ),
    "RMSNormalization": ((D.FLOAT,), (normalised("RMSNormalization", False),)),
    "ReduceLogSum": (FLOATS, (lambda g, d: g.op("ReduceLogSum", g.op("Exp", g.input("x", 3, 7, dtype=d)), g.ints(1)),)),
    "Relu": ((*FLOATS, D.INT32, D.INT8), (unary("Relu"),)),
    "Reshape": (
        (D.FLOAT,),
        (lambda g, d: g.op("Neg", g.op("Reshape", g.op("Transpose", g.input("x", 3, 5, dtype=d)), g.ints(3, 5))),),
    ),
    "Shrink": (FLOATS, (unary("Shrink", bias=0.2, lambd=0.7),)),
    "Sign": ((*FLOATS, D.INT64, D.INT32, D.UINT8), (unary("Sign"),)),
    "Slice": (
        (*ALL, D.BOOL),
        (
            data("Slice", 5, 7, i1=[1, -3], i2=[4, 100], i3=[0, 1]),
            data("Slice", 5, 7, i1=[6, 0], i2=[-100, 5], i3=[1, 0], i4=[-2, 3]),
            data("Slice", 5, 7, i1=[3], i2=[3], i3=[0]),
        ),
    ),
    "Softmax": (FLOATS, (unary("Softmax"), unary("Softmax", (2, 3, 5), axis=1), unary("Softmax", (3, 1)))),
    "SpaceToDepth": ((D.FLOAT, D.INT8), (unary("SpaceToDepth", (2, 3, 4, 2), blocksize=2),)),
    "Split": (
        (D.FLOAT, D.BOOL),
        (
            lambda g, d: g.ops("Split", 3, g.input("x", 2, 7, dtype=d), g.ints(1, 4, 2), axis=1),
            lambda g, d: g.ops("Split", 2, g.input("x", 5, 2, dtype=d), num_outputs=2),
        ),
    ),
    "Squeeze": ((D.FLOAT,), (lambda g, d: g.op("Neg", g.op("Squeeze", g.input("x", 3, 1, 5, dtype=d))),)),
    "Sum": (FLOATS, (lambda g, d: g.op("Sum", *(g.input(f"x{n}", n, 5, dtype=d) for n in (1, 3, 1))),)),
    "Swish": ((D.FLOAT,), (unary("Swish", alpha=1.5),)),
    "ThresholdedRelu": (FLOATS, (unary("ThresholdedRelu", alpha=0.6),)),
    "Tile": ((*ALL, D.BOOL), (data("Tile", 3, 5, i1=[2, 3]),)),
    "Transpose": ((*ALL, D.BOOL), (unary("Transpose", (2, 3, 5), perm=[1, 2, 0]), unary("Transpose", (3, 7)))),
    "Trilu": ((D.FLOAT, D.INT64, D.BOOL), (unary("Trilu", (2, 3, 5)), unary("Trilu", (5, 3), upper=0))),
    "Unsqueeze": ((D.FLOAT,), (lambda g, d: g.op("Neg", g.op("Unsqueeze", g.input("x", 3, 5, dtype=d), g.ints(1))),)),
    "Where": ((*ALL, D.BOOL), (where, mask)),
}
"""Operator -> the types it is tried in, and the ways."""

OPSETS = {"RMSNormalization": 23, "Swish": 24}


def function_for(build: Build, dtype: D, operator: str = "") -> KernelFunction:
    """One kernel function of what a case builds."""
    g = GraphBuilder(opset=OPSETS.get(operator, 21))
    outputs = build(g, dtype)
    return function_of(g, *([outputs] if isinstance(outputs, onnx_ir.Value) else outputs))
