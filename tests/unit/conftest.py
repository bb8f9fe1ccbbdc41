"""Random models for property tests: small, valid, and with everything that makes cutting hard."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnx_ir.passes.common
import pytest
from onnx.reference import ReferenceEvaluator

RandomModel = Callable[..., onnx_ir.Model]


class _Builder:
    """Grows a graph of 4x4 float tensors by operators drawn at random."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.lines: list[str] = []
        self.squares = ["x", "z"]
        self.count = 0

    def value(self) -> str:
        return self.rng.choice(self.squares[-4:] if self.rng.random() < 0.7 else self.squares)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def grow(self) -> None:
        kind = self.rng.choice(
            ["relu", "add", "mul_row", "matmul", "split", "views", "clip", "if", "norm", "unused_output", "transpose"]
        )
        a, b, out = self.value(), self.value(), self.fresh()
        weight = self.rng.choice(["w0", "w1"])
        emit = self.lines.append
        if kind == "relu":
            emit(f"{out} = {self.rng.choice(['Relu', 'Tanh', 'Neg'])}({a})")
        elif kind == "add":
            emit(f"{out} = {self.rng.choice(['Add', 'Sub', 'Max'])}({a}, {b})")
        elif kind == "mul_row":
            emit(f"{out} = Mul({a}, row)")
        elif kind == "matmul":
            emit(f"{out} = MatMul({a}, {weight})")
        elif kind == "split":
            emit(f"{out}a, {out}b = Split<axis=0, num_outputs=2>({a})")
            emit(f"{out} = Concat<axis=0>({out}b, {out}a)")
        elif kind == "views":
            emit(f"{out}a = Reshape({a}, flat)")
            emit(f"{out}b = Exp({out}a)" if self.rng.random() < 0.5 else f"{out}b = Identity({out}a)")
            emit(f"{out} = Reshape({out}b, square)")
        elif kind == "clip":
            emit(f"{out} = Clip({a}, , one)")
        elif kind == "if":
            emit(f"{out}s = ReduceSum<keepdims=0>({a})")
            emit(f"{out}c = Less({out}s, one)")
            emit(
                f"{out} = If({out}c) <then_branch = t () => (float[4,4] {out}t) {{ {out}t = Add({b}, {weight}) }}, "
                f"else_branch = e () => (float[4,4] {out}e) {{ {out}m = Neg({a}) {out}e = Relu({out}m) }}>"
            )
        elif kind == "norm":
            emit(f"{out} = Softmax<axis=-1>({a})")
        elif kind == "unused_output":
            emit(f"{out}, {out}i = TopK<axis=1>({a}, four)")
        else:
            emit(f"{out} = Transpose<perm=[1, 0]>({a})")
        self.squares.append(out)

    def model(self, operators: int) -> onnx_ir.Model:
        for _ in range(operators):
            self.grow()
        chosen = {self.squares[-1], *self.rng.sample(self.squares[2:], k=min(2, len(self.squares) - 2))}
        outputs = sorted(chosen)
        body = "\n".join(self.lines)
        text = f"""<ir_version: 10, opset_import: ["" : 21]>
        g (float[4,4] x, float[4,4] z) => ({", ".join(f"float[4,4] {name}" for name in outputs)})
        <float one = {{1.0}}, int64[1] four = {{4}}> {{ {body} }}"""
        proto = onnx.parser.parse_model(text)
        draw = np.random.default_rng(self.rng.randrange(1 << 30))
        weights: Mapping[str, Any] = {
            "w0": draw.normal(size=(4, 4)).astype(np.float32),
            "w1": draw.normal(size=(4, 4)).astype(np.float32),
            "row": draw.normal(size=4).astype(np.float32),
            "flat": np.array([16], np.int64),
            "square": np.array([4, 4], np.int64),
        }
        # added here because the text form cannot hold random data
        proto.graph.initializer.extend(onnx.numpy_helper.from_array(data, name) for name, data in weights.items())
        model: onnx_ir.Model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto))
        for _ in range(self.count):  # a removed If still counts as a use of what its bodies captured
            onnx_ir.passes.common.RemoveUnusedNodesPass()(model)
            model = onnx_ir.from_proto(onnx_ir.to_proto(model))
        return model


@pytest.fixture(scope="session")
def random_model() -> RandomModel:
    """Makes a model from a seed, with a given number of operators (7 unless told)."""

    def make(seed: int, operators: int = 7) -> onnx_ir.Model:
        return _Builder(seed).model(operators)

    return make


@pytest.fixture(scope="session")
def evaluate() -> Callable[..., list[Any]]:
    """Runs a model in ONNX's own evaluator; without feeds, on the inputs of `random_model`."""

    def run(model: onnx_ir.Model, feeds: Mapping[str, Any] | None = None) -> list[Any]:
        if feeds is None:
            draw = np.random.default_rng(0)
            feeds = {name: draw.normal(size=(4, 4)).astype(np.float32) for name in ("x", "z")}
        return list(ReferenceEvaluator(onnx_ir.to_proto(model)).run(None, dict(feeds)))

    return run


@pytest.fixture(scope="session")
def parsed() -> Callable[[str], onnx_ir.Model]:
    """A model from the text of a graph, shapes inferred."""

    def parse(graph: str, opset: int = 21) -> onnx_ir.Model:
        proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {graph}')
        model: onnx_ir.Model = onnx_ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))
        return model

    return parse
