"""How a model is written: outputs that are something else, functions, names, where constants are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.integration.input.odd_models import OddModel, floats, made, odd, relu, texts

WEIGHT = floats(4, 4, seed=7)


@odd
def outputs_of_other_things() -> OddModel:
    """Outputs that are an input, a weight, a constant, and one value under two names; and an input nobody reads."""

    def oracle(x: Any, unused: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        return {"same": x, "weight": WEIGHT, "fixed": np.array([1, 2], np.float32), "one": h, "two": h, "y": np.tanh(h)}

    return made(
        "outputs_of_other_things",
        """others (float[2,4] x, float[3] unused) => (float[2,4] same, float[4,4] weight, float[2] fixed,
          float[2,4] one, float[2,4] two, float[2,4] y) {
          same = Identity(x)
          fixed = Constant<value_floats = [1.0, 2.0]>()
          m = MatMul(x, weight)
          one = Relu(m)
          two = Identity(one)
          y = Tanh(one)
        }""",
        oracle,
        {"x": floats(2, 4), "unused": floats(3)},
        weight=WEIGHT,
    )


@odd
def functions() -> OddModel:
    """Functions of the model: with attributes, one in another, one of a domain of its own, one in a body."""

    def oracle(x: Any) -> dict[str, Any]:
        def scaled(a: Any, factor: float) -> Any:
            return np.where(a < 0, np.float32(factor) * a, a) @ WEIGHT

        twice = np.tanh(scaled(scaled(x, 0.2), 0.2))
        return {"y": twice - scaled(x, 0.5), "z": twice if x.sum() > 0 else -x}

    return made(
        "functions",
        """functions (float[2,4] x) => (float[2,4] y, float[2,4] z) <float nought = {0}> {
          a = test.local.Twice(x, w)
          b = test.other.Scaled<factor = 0.5>(x, w)
          y = Sub(a, b)
          total = ReduceSum<keepdims = 0>(x)
          positive = Greater(total, nought)
          z = If(positive) <
            then_branch = yes () => (float[2,4] s) { s = test.local.Twice(x, w) },
            else_branch = no () => (float[2,4] t) { t = Neg(x) }>
        }
        <domain: "test.other", opset_import: ["" : 21]>
        Scaled <factor: float = 0.2> (a, m) => (b) {
          l = LeakyRelu<alpha: float = @factor>(a)
          b = MatMul(l, m)
        }
        <domain: "test.local", opset_import: ["" : 21, "test.other" : 1]>
        Twice (a, m) => (d) {
          b = test.other.Scaled(a, m)
          c = test.other.Scaled<factor = 0.2>(b, m)
          d = Tanh(c)
        }""",
        oracle,
        {"x": np.abs(floats(2, 4))},
        {"x": -np.abs(floats(2, 4))},
        w=WEIGHT,
    )


NAMES = {
    "x": "../../in put:0",
    "h": "a/b/" + "long" * 100,
    "m": "Ünïcode ☃ 層 [/bold]",
    "w": "C:\\weights\\w.bin",
    "y": "..",
    "z": " ",
    "k": "k0000",
    "q": "-y;$(false)'\"<&>|*?% [red]\n\t\\",
}
"""Names of values as no file system, shell or format may take them for anything else."""


@odd
def names() -> OddModel:
    """Names with slashes, spaces, colons and quotes, in other scripts, and very long."""

    def oracle(**inputs: Any) -> dict[str, Any]:
        [x] = inputs.values()
        h = np.tanh(relu(x @ WEIGHT))
        return {NAMES["y"]: h + 1, NAMES["z"]: -h, NAMES["q"]: h * h}

    nodes = [
        helper.make_node("MatMul", [NAMES["x"], NAMES["w"]], [NAMES["m"]], name="../node"),
        helper.make_node("Relu", [NAMES["m"]], [NAMES["k"]], name="../node"),
        helper.make_node("Tanh", [NAMES["k"]], [NAMES["h"]], name="Ü " * 200),
        helper.make_node("Add", [NAMES["h"], "one"], [NAMES["y"]], name=""),
        helper.make_node("Neg", [NAMES["h"]], [NAMES["z"]], name="k0001"),
        helper.make_node("Mul", [NAMES["h"], NAMES["h"]], [NAMES["q"]], name='"quoted"'),
    ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "../graph: ☃",
        [info(NAMES["x"], TensorProto.FLOAT, [2, 4])],
        [info(NAMES[key], TensorProto.FLOAT, [2, 4]) for key in "yzq"],
        [numpy_helper.from_array(WEIGHT, NAMES["w"]), numpy_helper.from_array(np.float32(1), "one")],
    )
    proto = helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
    return OddModel(name="names", proto=proto, feeds=({NAMES["x"]: floats(2, 4)},), oracle=oracle)


@odd
def kept_constants() -> OddModel:
    """Weights as raw bytes, in typed fields and sparse; a Constant by each of its attributes; a default input."""
    sparse = np.array([[0, 2, 0, 0], [0, 0, 0, -1]], np.float32)
    default = floats(2, 4, seed=8)

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT) + sparse + default
        return {
            "y": h * np.float32(0.5) + np.array([1, 2, 3, 4], np.float32),
            "halves": h.astype(np.float16) + np.array([0.5, 1.5, -2, 0], np.float16),
            "n": np.array([7, 8, 9]) + 5,
            "spread": h @ sparse.T,
            "word": texts("one"),
        }

    model = made(
        "kept_constants",
        """kept (float[2,4] x, float[2,4] given) => (float[2,4] y, float16[2,4] halves, int64[3] n, float[2,2] spread,
          string[1] word) {
          m = MatMul(x, w)
          r = Relu(m)
          s = Add(r, sparse)
          h = Add(s, given)
          half = Constant<value_float = 0.5>()
          row = Constant<value_floats = [1.0, 2.0, 3.0, 4.0]>()
          p = Mul(h, half)
          y = Add(p, row)
          c = Cast<to = 10>(h)
          halves = Add(c, typed)
          five = Constant<value_int = 5>()
          several = Constant<value_ints = [7, 8, 9]>()
          n = Add(several, five)
          spread = MatMul(h, across)
          one = Constant<value_string = "one">()
          ones = Constant<value_strings = ["", "x"]>()
          first = Constant<value = int64[1] {0}>()
          part = Gather(ones, first)
          word = StringConcat(part, one)
        }""",
        oracle,
        {"x": floats(2, 4)},
        w=WEIGHT,
        given=default,
    )
    typed = helper.make_tensor("typed", TensorProto.FLOAT16, [4], [0.5, 1.5, -2, 0])
    assert not typed.raw_data
    model.proto.graph.initializer.append(typed)
    where = np.argwhere(sparse)
    values = numpy_helper.from_array(sparse[tuple(where.T)], "sparse")
    model.proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(where), sparse.shape)
    )
    turned = np.argwhere(sparse.T)
    values = numpy_helper.from_array(sparse.T[tuple(turned.T)], "")
    node = helper.make_node(
        "Constant",
        [],
        ["across"],
        sparse_value=helper.make_sparse_tensor(values, numpy_helper.from_array(turned), sparse.T.shape),
    )
    model.proto.graph.node.insert(0, node)
    return model


def no_inputs() -> OddModel:
    """Constants only."""

    def oracle() -> dict[str, Any]:
        return {"y": np.tanh(WEIGHT), "n": np.array([0, 2, 4])}

    return made(
        "no_inputs",
        """no_inputs () => (float[4,4] y, int64[3] n) <int64 from = {0}, int64 to = {6}, int64 by = {2}> {
          y = Tanh(w)
          n = Range(from, to, by)
        }""",
        oracle,
        {},
        w=WEIGHT,
    )


def no_nodes() -> OddModel:
    """An input and a weight, both outputs as they are."""

    def oracle(x: Any) -> dict[str, Any]:
        return {"x": x, "w": WEIGHT}

    return made(
        "no_nodes", "no_nodes (float[2,3] x) => (float[2,3] x, float[4,4] w) {}", oracle, {"x": floats(2, 3)}, w=WEIGHT
    )


def output_twice() -> OddModel:
    """The same value listed twice among the outputs."""

    def oracle(x: Any) -> dict[str, Any]:
        return {"y": relu(x)}

    return made(
        "output_twice",
        "output_twice (float[3] x) => (float[3] y, float[3] y) { y = Relu(x) }",
        oracle,
        {"x": floats(3)},
    )
