"""Models for unit tests, and what evaluates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator

import collage_testing

RandomModel = Callable[..., onnx_ir.Model]


@pytest.fixture(scope="session")
def random_model() -> RandomModel:
    """Makes a model from a seed, with a given number of operators (7 unless told)."""
    return collage_testing.random_model


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
