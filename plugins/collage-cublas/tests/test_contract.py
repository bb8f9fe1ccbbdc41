"""The whole contract, by the kit that core ships; the device is a fake one, and the library's work is emulated."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir
import pytest

from collage_core.registry import Toolchain
from collage_cublas.library import Descriptors
from collage_testing import GraphBuilder, dense, operator_models
from collage_testing.kit import FakeDevice, check_plugin
from collage_testing.kit.gpu_plugins import HOST

from .emulator import Emulator
from .machine import plugin_over

FLOAT16, BFLOAT16 = onnx_ir.DataType.FLOAT16, onnx_ir.DataType.BFLOAT16


def models() -> Mapping[str, onnx_ir.Model]:
    products = ("MatMul", "MatMul of two inputs", "Gemm", "Relu")
    some = {name: model for name, model in operator_models().items() if name in products}
    some |= {f"dense {activation}": dense(activation=activation) for activation in ("", "Relu", "Gelu")}
    g = GraphBuilder("transposed")
    product = g.op("Gemm", g.input("x", 16, 6), g.weight("w", 16, 8), g.weight("b", 8), transA=1, alpha=0.5)
    some["transposed, scaled"] = g.model(g.op("Gelu", product, approximate="tanh"))
    g = GraphBuilder("factors")
    x, z = g.input("x", 6, 16), g.input("z", 6, 8)
    some["with a matrix and both factors"] = g.model(g.op("Gemm", x, g.weight("w", 16, 8), z, alpha=0.5, beta=-2.0))
    g = GraphBuilder("rows")
    product = g.op("Add", g.weight("b", 8), g.op("MatMul", g.input("x", 2, 3, 16), g.weight("w", 16, 8)))
    some["bias first, then a sum"] = g.model(g.op("Relu", g.op("Add", product, g.op("Neg", g.input("z", 2, 3, 8)))))
    for dtype in (FLOAT16, BFLOAT16):
        g = GraphBuilder("inputs")
        x, z, b = (g.input(name, *shape, dtype=dtype) for name, shape in (("x", (3, 16)), ("z", (16, 8)), ("b", (8,))))
        some[f"{dtype.name}, three inputs"] = g.model(g.op("Relu", g.op("Add", g.op("MatMul", x, z), b)))
    return some


@pytest.mark.slow
def test_the_plugin_keeps_the_contract(descriptors: Descriptors) -> None:
    emulator = Emulator(descriptors)
    toolchain = Toolchain("cublas", plugin_over(emulator))

    conformance = check_plugin(
        toolchain, models(), host=HOST, open_device=FakeDevice("cuda:0").open, tolerance=1e-2, max_variants=2
    )

    assert set(conformance.refused) == {"Relu"}  # no product before it
    assert set(conformance.ran) == set(models()) - {"Relu"}
    targets = 4  # the plain one, TF32, float16 and bfloat16
    assert conformance.ran["dense Relu"] == targets * 3
    assert conformance.ran["transposed, scaled"] == targets * 2
    # alone; with the bias; the sum; then its activation
    assert conformance.ran["bias first, then a sum"] == targets * 4
    assert conformance.ran["FLOAT16, three inputs"] == 3
    assert emulator.calls.count("create cuda:0") == 1


def test_a_machine_without_a_gpu_builds_what_it_cannot_run() -> None:
    """`runs=False`: kernels are refused when loaded, for want of a stream, and that is no breach."""
    toolchain = Toolchain("cublas", plugin_over(Emulator()))

    conformance = check_plugin(toolchain, {"dense": dense(activation="Relu")}, host=HOST, runs=False)

    assert conformance.ran == {"dense": 12}
