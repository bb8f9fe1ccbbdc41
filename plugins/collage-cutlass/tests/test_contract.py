"""The whole contract, by the kit that core ships; the device is a fake one, nvcc and its libraries are emulated."""

from __future__ import annotations

from collage_core.registry import Toolchain
from collage_testing import operator_models
from collage_testing.kit import FakeDevice, check_plugin
from collage_testing.kit.gpu_plugins import HOST

from .cases import convolution, product
from .emulator import FakeCompiler
from .machine import plugin_over


def test_the_plugin_keeps_the_contract() -> None:
    models = {"Relu": operator_models()["Relu"]}
    models["convolution"] = convolution("Silu", inside=True)
    models["product"] = product("Gelu", bias=(8,), constant=True)
    calls: list[str] = []
    toolchain = Toolchain("cutlass", plugin_over(FakeCompiler(), calls))

    conformance = check_plugin(
        toolchain, models, host=HOST, open_device=FakeDevice("cuda:0").open, tolerance=2e-3, max_variants=1
    )

    assert "Relu" in conformance.refused  # nothing before it
    assert {"convolution", "product"} <= set(conformance.ran)
    # alone and with its activation, on the plain target and in three precisions
    assert conformance.ran["convolution"] == 4 * 2
    assert {"gemm", "conv", "turn", "narrow", "turn narrow"} <= set(calls)


def test_a_machine_without_a_gpu_builds_what_it_cannot_run() -> None:
    toolchain = Toolchain("cutlass", plugin_over(FakeCompiler()))

    conformance = check_plugin(toolchain, {"product": product("Gelu")}, host=HOST, runs=False)

    assert conformance.ran == {"product": 4 * 2}
