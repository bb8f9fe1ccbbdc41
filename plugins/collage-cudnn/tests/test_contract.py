"""The whole contract, by the kit that core ships; the device is a fake one, and the library's work is emulated."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir

from collage_core.registry import Toolchain
from collage_testing import operator_models
from collage_testing.kit import FakeDevice, check_plugin
from collage_testing.kit.gpu_plugins import HOST

from .cases import attention, block, convolution, layer_norm, product
from .emulator import Emulator
from .machine import plugin_over


def models() -> Mapping[str, onnx_ir.Model]:
    some = {name: model for name, model in operator_models().items() if name in ("Conv", "Relu")}
    some["convolution"] = convolution("Relu")
    some["residual block"] = block()
    some["attention"] = attention()
    some["layer norm"] = layer_norm()
    some["product"] = product("Sigmoid", bias=True)
    return some


def test_the_plugin_keeps_the_contract() -> None:
    emulator = Emulator()
    toolchain = Toolchain("cudnn", plugin_over(emulator))

    conformance = check_plugin(
        toolchain, models(), host=HOST, open_device=FakeDevice("cuda:0").open, tolerance=1e-2, max_variants=2
    )

    assert set(conformance.refused) == {"Relu"}  # nothing before it
    assert set(conformance.ran) == set(models()) - {"Relu"}
    # alone; with its activation; that once more, as a region of one: on both targets
    assert conformance.ran["convolution"] == 2 * 3
    # two products, the block, and that as a region; no float16 by way of TF32
    assert conformance.ran["attention"] == 4
    assert emulator.calls.count("handle cuda:0 None") == 1
    assert sum(call.startswith("handle") for call in emulator.calls) == 2  # and one for the stream


def test_a_machine_without_a_gpu_builds_what_it_cannot_run() -> None:
    """`runs=False`: kernels are refused when loaded, for want of a stream, and that is no breach."""
    toolchain = Toolchain("cudnn", plugin_over(Emulator()))

    conformance = check_plugin(toolchain, {"conv": convolution("Relu")}, host=HOST, runs=False)

    assert conformance.ran == {"conv": 2 * 3}
