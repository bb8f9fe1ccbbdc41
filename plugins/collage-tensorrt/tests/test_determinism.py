"""Which engines promise the same bits each time; the promise is NVIDIA's, cited in `determinism.py`."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import BuildContext, KernelFunction, TensorSpec, Unsupported
from collage_tensorrt.determinism import why_other_bits
from collage_tensorrt.editions import RTX, TENSORRT
from collage_testing import GraphBuilder

from .machine import EDITIONS, emulated, fake, lowered, plugin_over, target, whole


def scatter(op_type: str, opset: int) -> onnx_ir.Model:
    g = GraphBuilder(opset=opset)
    at = np.zeros((3, 1) if op_type == "ScatterND" else (3, 4), np.int64)
    return g.model(g.op(op_type, g.input("x", 3, 4), g.constant("at", at), g.input("u", 3, 4)))


SCATTERING = {
    "Scatter": lambda: scatter("Scatter", 10),
    "ScatterElements": lambda: scatter("ScatterElements", 20),
    "ScatterND": lambda: scatter("ScatterND", 20),
    "in a branch": lambda: onnx_ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 20]>
        g (bool c, float[3] x, int64[3,1] at, float[3] u) => (float[3] y) {
            y = If (c) <
                then_branch = one () => (float[3] a) { a = ScatterND (x, at, u) },
                else_branch = other () => (float[3] b) { b = Identity (x) }
            >
        }"""),
    "in a function": lambda: onnx_ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        g (float[3] x, int64[3,1] at, float[3] u) => (float[3] y) { y = own.Update (x, at, u) }
        <domain: "own", opset_import: ["" : 20]>
        Update (x, at, u) => (y) { y = ScatterND (x, at, u) }"""),
}


@pytest.mark.parametrize("edition", [TENSORRT, RTX])
@pytest.mark.parametrize("where", SCATTERING)
def test_what_scatters_promises_nothing(where: str, edition: Any) -> None:
    assert "in an order left to chance" in why_other_bits(edition, SCATTERING[where]())


def product(rows: int | str) -> KernelFunction:
    g = GraphBuilder()
    function = whole(g.model(g.op("Relu", g.op("MatMul", g.input("x", rows, 16), g.weight("w", 16, 8)))))
    float32 = onnx_ir.DataType.FLOAT
    bound = TensorSpec(name="x", dtype=float32, shape=(4, 16)), TensorSpec(name="relu_0", dtype=float32, shape=(4, 8))
    return dataclasses.replace(function, inputs=bound[:1], outputs=bound[1:])


@pytest.mark.parametrize(
    ("name", "function", "same"),
    [
        ("tensorrt", product(4), True),
        ("tensorrt_rtx", product(4), True),
        ("tensorrt", product("batch"), True),
        ("tensorrt_rtx", product("batch"), False),  # a general kernel first, then the one for this batch
        ("tensorrt", whole(scatter("ScatterND", 20)), False),
        ("tensorrt_rtx", whole(scatter("ScatterND", 20)), False),
    ],
)
def test_an_artifact_says_so_and_none_is_built_where_the_same_bits_are_asked_for(
    name: str, function: KernelFunction, same: bool, build: BuildContext
) -> None:
    plugin = plugin_over(emulated(EDITIONS[name], fake()[0]), EDITIONS[name])
    on = target(EDITIONS[name])

    [artifact] = lowered(plugin, function, build, on)
    asked = plugin.collage_lower(on, function, dataclasses.replace(build, deterministic=True))

    assert artifact.deterministic is same
    assert isinstance(asked, Unsupported) is not same
