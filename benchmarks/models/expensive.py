"""Small models whose attributes and constants ask for much: memory, time, nodes or outputs.

Each is valid ONNX of at most some megabytes. What it asks for is known while it is prepared (`constant`), or only when
it runs (`computed`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import onnx
from onnx import helper, parser

_OPSET: Final = 20
_HUGE: Final = 10**10
"""Elements: 40 GB of float32."""
_SIDE: Final = 10**5
"""Side of a square of `_HUGE` elements."""


def text(body: str, *, inputs: str = "float[4] x", outputs: str = "float[n] y", extra: str = "") -> onnx.ModelProto:
    """Parse a model of ONNX's own operators.

    Args:
        body: Its nodes.
        inputs: Its inputs.
        outputs: Its outputs.
        extra: Further opset imports and functions, in this order, separated by `|`.
    """
    imports, _, functions = extra.partition("|")
    return parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : {_OPSET}{imports}]> g ({inputs}) => ({outputs}) {{ {body} }} {functions}'
    )


def constant(name: str, values: str, kind: str = "int64") -> str:
    """Return a node that gives a constant vector, or a scalar where `values` has no brackets."""
    if values.startswith("["):
        count = values.count(",") + 1
        return f"{name} = Constant <value = {kind}[{count}] {{{values[1:-1]}}}> ()\n"
    return f"{name} = Constant <value = {kind} {{{values}}}> ()\n"


def computed(name: str, values: str) -> str:
    """Return nodes that give an int64 constant, of which nothing is known before the model runs."""
    return (
        constant(f"{name}_most", values)
        + constant(f"{name}_least", "-1.0", "float")
        + f"{name}_peak = ReduceMax <keepdims = 0> (x)\n{name}_size = Abs ({name}_peak)\n"
        + f"{name}_sure = Greater ({name}_size, {name}_least)\n{name}_one = Cast <to = 7> ({name}_sure)\n"
        + f"{name} = Mul ({name}_most, {name}_one)\n"
    )


def vector(count: int, kind: str = "float") -> str:
    """Return nodes that give `v`, a vector of `count` elements whose number is known only when the model runs."""
    cast = {"float": 1, "int64": 7, "bool": 9}[kind]
    return computed("count", f"[{count}]") + (
        "first = Cast <to = 1> (x)\nzero = Constant <value = int64[1] {0}> ()\none = Gather (first, zero)\n"
        f"wide = Expand (one, count)\nv = Cast <to = {cast}> (wide)\n"
    )


def _loop(body: str, trips: str, state: str = "x", *, outputs: str = "float[n] y") -> onnx.ModelProto:
    return text(
        constant("trips", trips)
        + constant("going", "1", "bool")
        + f"y = Loop (trips, going, {state}) <body = b (int64 i, bool c, float[m] s) => (bool d, float[k] t) "
        f"{{ d = Identity (c) {body} }}>",
        outputs=outputs,
    )


def _nested_loops(depth: int, trips: int) -> onnx.ModelProto:
    body = "y0 = Add (x, x)"
    for level in range(depth):
        body = (
            f"n{level} = Constant <value = int64 {{{trips}}}> () c{level} = Constant <value = bool {{1}}> () "
            f"y{level + 1} = Loop (n{level}, c{level}, x) <body = b{level} "
            f"(int64 i{level}, bool e{level}, float[4] s{level}) => (bool d{level}, float[4] y{level}) "
            f"{{ d{level} = Identity (e{level}) {body} }}>"
        )
    return text(body, outputs=f"float[4] y{depth}")


def _nested_ifs(depth: int, *, both: bool) -> onnx.ModelProto:
    def branch(level: int, path: str) -> str:
        if level == depth:
            return f"r{path} = Abs (x)"
        then = branch(level + 1, path + "t")
        other = branch(level + 1, path + "e") if both else f"r{path}e = Neg (x)"
        return (
            f"r{path} = If (c) <then_branch = g{path}t () => (float[4] r{path}t) {{ {then} }}, "
            f"else_branch = g{path}e () => (float[4] r{path}e) {{ {other} }}>"
        )

    condition = "h = ReduceMax <keepdims = 0> (x) a = Abs (h) l = Constant <value = float {-1.0}> () c = Greater (a, l)"
    return text(f"{condition} {branch(0, 'z')}", outputs="float[4] rz")


def _functions(depth: int, calls: int) -> onnx.ModelProto:
    functions = ['<domain: "f", opset_import: ["" : 20]> f0 (a) => (b) { b = Relu (a) }']
    for level in range(1, depth + 1):
        chain = " ".join(f"t{call + 1} = f.f{level - 1} (t{call})" for call in range(calls))
        functions.append(
            f'<domain: "f", opset_import: ["" : 20, "f" : 1]> f{level} (t0) => (b) '
            f"{{ {chain} b = Identity (t{calls}) }}"
        )
    return text(f"y = f.f{depth} (x)", outputs="float[4] y", extra=', "f" : 1|' + "\n".join(functions))


def _chain(operator: str, count: int) -> onnx.ModelProto:
    nodes = [helper.make_node(operator, [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
    return _model(nodes, {"v0": (4,)}, {f"v{count}": (4,)})


def _constant_chain(count: int) -> onnx.ModelProto:
    start = helper.make_node("Constant", [], ["v0"], value_floats=[1.0, 2.0, 3.0, 4.0])
    nodes = [start, *(helper.make_node("Sin", [f"v{i}"], [f"v{i + 1}"]) for i in range(count))]
    return _model([*nodes, helper.make_node("Add", ["x", f"v{count}"], ["y"])], {"x": (4,)}, {"y": (4,)})


def _diamonds(count: int) -> onnx.ModelProto:
    nodes = []
    for i in range(count):
        nodes += [
            helper.make_node("Sin", [f"v{i}"], [f"a{i}"]),
            helper.make_node("Cos", [f"v{i}"], [f"b{i}"]),
            helper.make_node("Add", [f"a{i}", f"b{i}"], [f"v{i + 1}"]),
        ]
    return _model(nodes, {"v0": (4,)}, {f"v{count}": (4,)})


def _many_outputs(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu" if i % 2 else "Sin", ["x"], [f"y{i}"]) for i in range(count)]
    return _model(nodes, {"x": (4,)}, {f"y{i}": (4,) for i in range(count)})


def _one_split(count: int) -> onnx.ModelProto:
    names = [f"y{i}" for i in range(count)]
    node = helper.make_node("Split", ["x"], names, axis=0, num_outputs=count)
    return _model([node], {"x": (count,)}, dict.fromkeys(names, (1,)))


def _many_inputs(count: int) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(count)]
    return _model([helper.make_node("Sum", names, ["y"])], dict.fromkeys(names, (4,)), {"y": (4,)})


def _model(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, ...]], outputs: dict[str, tuple[int, ...]]
) -> onnx.ModelProto:
    kinds = [
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in values.items()]
        for values in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "g", *kinds)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9)


def _doubled(operator: str, count: int) -> onnx.ModelProto:
    """Return a chain of nodes each of which doubles its input."""
    steps = " ".join(f"v{i + 1} = {operator.replace('?', f'v{i}')}" for i in range(count))
    return text(steps.replace("v0", "x"), outputs=f"float[n] v{count}")


def _pooled(operator: str, size: int, kernel: int, *, rank: int = 2) -> onnx.ModelProto:
    pads = ",".join([str(kernel // 2)] * 2 * rank)
    kernel_shape = ",".join([str(kernel)] * rank)
    extents = ",".join([str(size)] * rank)
    return text(
        f"y = {operator} <kernel_shape = [{kernel_shape}], pads = [{pads}]> (x)",
        inputs=f"float[1,1,{extents}] x",
        outputs=f"float[{','.join('abcde'[: rank + 2])}] y",
    )


def _convolved(operator: str, size: int, kernel: int, *, rank: int = 2, channels: int = 1) -> onnx.ModelProto:
    model = text(
        f"y = {operator} <pads = [{','.join([str(kernel // 2)] * 2 * rank)}]> (x, w)",
        inputs=f"float[1,{channels},{','.join([str(size)] * rank)}] x",
        outputs=f"float[{','.join('abcde'[: rank + 2])}] y",
    )
    weights = np.random.default_rng(0).standard_normal((channels, channels, *[kernel] * rank)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


_Y2: Final = "float[n,m] y"
_SEQUENCES: Final = "e = SequenceEmpty () s0 = SequenceInsert (e, x) "

EXPENSIVE: Final[dict[str, Callable[[], onnx.ModelProto]]] = {
    # sizes that constants ask for
    "range_constant": lambda: text(
        constant("a", "0")
        + constant("b", str(_HUGE))
        + constant("c", "1")
        + "r = Range (a, b, c) f = Cast <to = 1> (r) m = ReduceMean (f) y = Add (x, m)"
    ),
    "range_computed": lambda: text(
        constant("a", "0") + computed("b", str(_HUGE)) + constant("c", "1") + "r = Range (a, b, c) y = Cast <to = 1>(r)"
    ),
    "fill_constant": lambda: text(
        constant("s", f"[{_HUGE}]") + "f = ConstantOfShape (s) m = ReduceMax (f) y = Add (x, m)"
    ),
    "fill_computed": lambda: text(computed("s", f"[{_HUGE}]") + "y = ConstantOfShape (s)"),
    "fill_then_sort": lambda: text(
        constant("s", "[4000000]") + constant("k", "[4000000]") + "f = ConstantOfShape (s) "
        "v, i = TopK (f, k) u = Unique (v) y = Add (x, u)"
    ),
    "expand_constant": lambda: text(constant("s", f"[{_HUGE // 4}, 4]") + "y = Expand (x, s)", outputs=_Y2),
    "expand_computed": lambda: text(computed("s", f"[{_HUGE // 4}, 4]") + "y = Expand (x, s)", outputs=_Y2),
    "tile_constant": lambda: text(constant("s", f"[{_HUGE}]") + "y = Tile (x, s)"),
    "pad_constant": lambda: text(constant("s", f"[{_HUGE}, {_HUGE}]") + "y = Pad (x, s)"),
    "pad_computed": lambda: text(computed("s", f"[0, {_HUGE}]") + "y = Pad (x, s)"),
    "one_hot_constant": lambda: text(
        constant("d", str(_HUGE)) + constant("v", "[0.0, 1.0]", "float") + "i = Cast <to = 7> (x) y = OneHot (i, d, v)",
        outputs=_Y2,
    ),
    "one_hot_computed": lambda: text(
        computed("d", str(_HUGE)) + constant("v", "[0.0, 1.0]", "float") + "i = Cast <to = 7> (x) y = OneHot (i, d, v)",
        outputs=_Y2,
    ),
    "eye_like": lambda: text(
        computed("s", f"[{_SIDE}, {_SIDE}]") + constant("f", "1.0", "float") + "e = Expand (f, s) y = EyeLike (e)",
        outputs=_Y2,
    ),
    "random_uniform": lambda: text(
        f"r = RandomUniform <shape = [{_SIDE}, {_SIDE}]> () m = ReduceMax (r) y = Add (x, m)", outputs=_Y2
    ),
    "resize_constant": lambda: text(
        constant("s", "[1.0, 1.0, 30000.0, 30000.0]", "float") + 'y = Resize <mode = "linear"> (x, , s)',
        inputs="float[1,1,4,4] x",
        outputs="float[a,b,c,d] y",
    ),
    "resize_computed": lambda: text(
        computed("s", "[1, 1, 30000, 30000]") + 'y = Resize <mode = "cubic"> (x, , , s)',
        inputs="float[1,1,4,4] x",
        outputs="float[a,b,c,d] y",
    ),
    "gather_huge": lambda: text(vector(_HUGE, "int64") + "i = Sub (v, v) y = Gather (x, i)"),
    "outer_product": lambda: text(
        vector(_SIDE)
        + constant("a", "[1]")
        + constant("b", "[0]")
        + "c = Unsqueeze (v, a) r = Unsqueeze (v, b) y = MatMul (c, r)",
        outputs=_Y2,
    ),
    "hann_window": lambda: text(constant("s", str(_HUGE)) + "w = HannWindow (s) m = ReduceMax (w) y = Add (x, m)"),
    "max_unpool": lambda: text(
        constant("s", f"[1, 1, {_SIDE}, {_SIDE}]") + "i = Cast <to = 7> (x) j = Sub (i, i) "
        "y = MaxUnpool <kernel_shape = [2, 2]> (x, j, s)",
        inputs="float[1,1,2,2] x",
        outputs="float[a,b,c,d] y",
    ),
    "grid_sample": lambda: text(
        computed("s", "[1, 20000, 20000, 2]")
        + constant("f", "0.5", "float")
        + "g = Expand (f, s) y = GridSample (x, g)",
        inputs="float[1,1,4,4] x",
        outputs="float[a,b,c,d] y",
    ),
    "roi_align": lambda: text(
        constant("r", "[0]")
        + constant("i", "[0]")
        + "q = Unsqueeze (b, r) y = RoiAlign <output_height = 30000, output_width = 30000> (x, q, i)",
        inputs="float[1,1,4,4] x, float[4] b",
        outputs="float[a,b,c,d] y",
    ),
    # doubling
    "concat_doubling": lambda: _doubled("Concat <axis = 0> (?, ?)", 40),
    "loop_doubling": lambda: _loop("t = Concat <axis = 0> (s, s)", "60"),
    "loop_doubling_scanned": lambda: text(
        constant("n", "40")
        + constant("g", "1", "bool")
        + "z, y = Loop (n, g, x) <body = b (int64 i, bool c, float[m] s) => (bool d, float[k] t, float[4] o) "
        "{ d = Identity (c) t = Concat <axis = 0> (s, s) o = Add (x, x) }>",
        outputs="float[n] z, float[a,b] y",
    ),
    "sequence_doubling": lambda: text(
        _SEQUENCES
        + constant("n", "60")
        + constant("g", "1", "bool")
        + "q = Loop (n, g, s0) <body = b (int64 i, bool c, seq(float[4]) s) => (bool d, seq(float[4]) t) "
        "{ d = Identity (c) a = ConcatFromSequence <axis = 0> (s) h = Concat <axis = 0> (a, a) "
        "w = Constant <value = int64 {4}> () t = SplitToSequence <axis = 0> (h, w) }> "
        "y = ConcatFromSequence <axis = 0> (q)",
    ),
    "string_doubling": lambda: text(
        "".join(f"v{i + 1} = StringConcat (v{i}, v{i})\n" for i in range(40)),
        inputs="string[1] v0",
        outputs="string[1] v40",
    ),
    "functions_doubling": lambda: _functions(30, 2),
    "functions_deep": lambda: _functions(90, 1),
    "ifs_doubling": lambda: _nested_ifs(12, both=True),
    "ifs_deep": lambda: _nested_ifs(20, both=False),
    # steps
    "loop_endless": lambda: _loop("t = Add (s, s)", str(2**62)),
    "loops_nested": lambda: _nested_loops(4, 1000),
    "scan_long": lambda: text(
        constant("n", "[3000000, 4]") + "e = Expand (x, n) z, y = Scan <num_scan_inputs = 1, body = b "
        "(float[4] s, float[4] v) => (float[4] t, float[4] o) { t = Add (s, v) o = Tanh (t) }> (x, e)",
        outputs="float[4] z, float[n,m] y",
    ),
    "lstm_long": lambda: text(
        constant("n", "[2000000, 1, 4]")
        + constant("a", "[1, 16, 4]")
        + constant("f", "0.1", "float")
        + "e = Expand (x, n) w = Expand (f, a) "
        "y = LSTM <hidden_size = 4> (e, w, w)",
        outputs="float[a,b,c,d] y",
    ),
    "sequence_chain": lambda: text(
        _SEQUENCES
        + constant("p", "0")
        + "".join(
            f"t{i} = SequenceAt (s{i}, p) u{i} = Relu (t{i}) s{i + 1} = SequenceInsert (s{i}, u{i})\n"
            for i in range(3000)
        )
        + "y = SequenceAt (s3000, p)",
        outputs="float[4] y",
    ),
    "sequence_of_millions": lambda: text(
        vector(20_000_000)
        + constant("w", "1")
        + constant("p", "7")
        + "s = SplitToSequence (v, w) y = SequenceAt (s, p)"
    ),
    # work
    "conv_large_kernel": lambda: _convolved("Conv", 512, 255),
    "conv_many_channels": lambda: _convolved("Conv", 2048, 9, channels=16),
    "conv_3d": lambda: _convolved("Conv", 128, 41, rank=3),
    "conv_transpose": lambda: _convolved("ConvTranspose", 1024, 255),
    "max_pool_large": lambda: _pooled("MaxPool", 1024, 255),
    "average_pool_3d": lambda: _pooled("AveragePool", 160, 41, rank=3),
    "lp_pool_large": lambda: _pooled("LpPool", 1024, 255),
    "local_response": lambda: text(
        constant("s", "[1, 20000, 64, 64]") + "e = Expand (x, s) y = LRN <size = 9999> (e)",
        inputs="float[1,1,1,1] x",
        outputs="float[a,b,c,d] y",
    ),
    "determinant": lambda: text(
        "r = RandomNormal <shape = [12000, 12000], seed = 1.0> () d = Det (r) y = Add (x, d)",
    ),
    "determinant_constant": lambda: text(
        constant("s", "[1400, 1400]") + "f = ConstantOfShape (s) d = Det (f) y = Add (x, d)",
    ),
    "einsum_outer": lambda: text(
        'y = Einsum <equation = "a,b,c,d->abcd"> (x, x, x, x)', inputs="float[400] x", outputs="float[a,b,c,d] y"
    ),
    "einsum_long": lambda: text(
        'y = Einsum <equation = "ab,cd,ef,gh,ij->aj"> (x, x, x, x, x)', inputs="float[40,40] x", outputs=_Y2
    ),
    "cumulative_sum": lambda: text(vector(_HUGE // 4) + constant("a", "0") + "y = CumSum (v, a)"),
    "top_k": lambda: text(
        vector(300_000_000) + constant("k", "[100000000]") + "y, i = TopK (v, k)", outputs="float[n] y"
    ),
    "unique": lambda: text(vector(300_000_000) + "y = Unique (v)"),
    "non_zero": lambda: text(vector(1_000_000_000) + "i = NonZero (v) y = Cast <to = 1> (i)", outputs=_Y2),
    "fourier_transform": lambda: text(
        vector(100_000_000) + constant("s", "[1, -1, 1]") + "v3 = Reshape (v, s) y = DFT (v3)", outputs="float[a,b,c] y"
    ),
    # nodes, inputs and outputs
    "chain": lambda: _chain("Sin", 100_000),
    "chain_constant": lambda: _constant_chain(100_000),
    "diamonds": lambda: _diamonds(10_000),
    "outputs": lambda: _many_outputs(50_000),
    "outputs_of_one": lambda: _one_split(50_000),
    "inputs": lambda: _many_inputs(20_000),
}
"""Makes each model, by name."""
