"""`precision=int8`: which functions become engines, and what the products in these read.

Engines cannot be loaded without a device. Those of TensorRT for RTX hold a description of each kernel and tensor as
text, from which these tests read the types of the operands.
"""

from __future__ import annotations

import collections
import dataclasses
import re
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.prepare.steps import prepare
from collage_core.contract import BuildContext, KernelFunction
from collage_core.ir.io.model_io import model_from_bytes
from collage_tensorrt.lower import ENGINE
from collage_tensorrt.query import problem
from collage_testing import GraphBuilder
from tests.exports.reading import read

from .bodies import products, quantised
from .machine import EDITIONS, HOST, RTX_4090, emulated, fake, lowered, plugin_over, target

D = onnx_ir.DataType
INTEGERS, FLOATS = ("int8", "int8"), ("float", "float")

_PRINTABLE = re.compile(rb"[\x20-\x7e]{4,}")
_TENSOR = re.compile(r'tensor=\{(?:[^{}]|\{[^{}]*\})*?name="([^"]+)"(?:[^{}]|\{[^{}]*\})*?type=(\w+)')
_PRODUCT = re.compile(r'(?:fully_connected|corrltn)=\{ name="[^"]+" output=\{[^}]*\} input=\{([^}]*)\}')


def operands(engine: bytes) -> collections.Counter[tuple[str, ...]]:
    """Types of both operands of each product of matrices (`fully_connected`) and convolution (`corrltn`)."""
    text = "\n".join(each.decode() for each in _PRINTABLE.findall(engine))
    types = dict(_TENSOR.findall(text))
    return collections.Counter(
        tuple(types[name] for name in re.findall(r'"([^"]+)"', names)[:2]) for names in _PRODUCT.findall(text)
    )


def engine_of(function: KernelFunction, precision: str, rtx: Any, build: BuildContext) -> bytes:
    [artifact] = lowered(plugin_over(rtx), function, build, target(precision=precision))
    return artifact.files[ENGINE]


@pytest.mark.parametrize("capability", ["8.0", "8.6", "8.9", "12.0", "12.1"])
def test_every_kind_of_product_multiplies_integers(capability: str, rtx: Any, build: BuildContext) -> None:
    host = dataclasses.replace(HOST, devices=(dataclasses.replace(RTX_4090, compute_capability=capability),))

    engine = engine_of(quantised(products()), "int8", rtx, dataclasses.replace(build, host=host))

    assert operands(engine) == {INTEGERS: 6}


def test_what_is_not_quantised_is_float32_or_float16(rtx: Any, build: BuildContext) -> None:
    function = quantised(products(), leave=1)

    assert operands(engine_of(function, "int8", rtx, build)) == {INTEGERS: 5, FLOATS: 1}
    assert operands(engine_of(function, "int8+fp16", rtx, build)) == {INTEGERS: 5, ("half", "half"): 1}


@pytest.mark.parametrize(("name", "integers"), [("bert", 12), ("vit", 13), ("gpt2", 9), ("convnext", 25)])
def test_whole_exports_become_engines_in_integers(name: str, integers: int, rtx: Any, build: BuildContext) -> None:
    """Projections to queries, keys and values are made one product; that of GPT-2, which is split, stays float32."""
    function = quantised(prepare(read(name, "torchscript")))

    found = operands(engine_of(function, "int8", rtx, build))

    assert found[INTEGERS] >= integers
    assert set(found) <= {INTEGERS, FLOATS}


def test_integers_with_a_zero_point_are_refused(rtx: Any) -> None:
    """So what core makes for TensorRT is symmetric."""
    asymmetric, symmetric = (quantised(products(), symmetric=each) for each in (False, True))

    assert "zero point is not supported" in (problem(rtx, asymmetric.model) or "")
    assert problem(rtx, symmetric.model) is None


@pytest.mark.parametrize("name", EDITIONS)
def test_the_library_is_given_the_pairs_and_float16_beside_them_where_asked_for(name: str, build: BuildContext) -> None:
    edition = EDITIONS[name]
    plugin = plugin_over(emulated(edition, fake()[0]), edition)
    function = quantised(products(), leave=1)
    casts = {}
    for precision in ("int8", "int8+fp16"):
        [artifact] = lowered(plugin, function, build, target(edition, precision))
        graph = model_from_bytes(artifact.files[ENGINE].partition(b"\0")[2]).graph
        casts[precision] = [node.op_type for node in graph].count("Cast")
        pairs = [node for node in graph if node.op_type in ("QuantizeLinear", "DequantizeLinear")]
        assert len(pairs) == 15, "five activations there and back, and five weights back"
        assert {value.dtype for node in pairs for value in node.inputs[2:]} == {D.INT8}  # type: ignore[union-attr]

    assert casts == {"int8": 0, "int8+fp16": 5}, "of what is multiplied, back, of the weight back, the result's two"


def test_what_a_model_has_quantised_itself_stays_integers_in_float16(rtx: Any, build: BuildContext) -> None:
    g = GraphBuilder("own")
    scale, zero = g.constant("s", np.float32(0.1)), g.constant("z", np.int8(0))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", 8, 64), scale, zero), scale, zero)
    w = g.op("DequantizeLinear", g.constant("w", np.ones((64, 32), np.int8)), scale, zero)
    function = quantised(g.model(g.op("MatMul", x, w)))

    assert operands(engine_of(function, "fp16", rtx, build)) == {INTEGERS: 1}
