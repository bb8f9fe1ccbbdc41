"""The whole contract, by the kit that core ships: on a fake device where engines are emulated, and as far as a machine
without a GPU can build with the library itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage_core.registry import Toolchain
from collage_tensorrt.editions import RTX, TENSORRT, Edition
from collage_testing import dense, operator_models
from collage_testing.kit import FakeDevice, check_plugin

from .emulated import Library
from .machine import HOST, plugin_over

NONZERO = "NonZero, its shape not known before"
SOME = ("Gemm", "Conv", "Relu", "Softmax", "Add of two inputs", "Split", "Relu of nothing", NONZERO)


def models(names: tuple[str, ...] | None = None) -> Mapping[str, onnx_ir.Model]:
    every = operator_models()
    return {**{name: every[name] for name in names or every}, "dense": dense(activation="Relu")}


def check(edition: Edition, subjects: Mapping[str, onnx_ir.Model], variants: int) -> None:
    device = FakeDevice("cuda:0")
    plugin = plugin_over(Library(rtx=edition is RTX, device=device), edition)

    conformance = check_plugin(
        Toolchain(edition.toolchain, plugin), subjects, host=HOST, open_device=device.open, max_variants=variants
    )

    assert set(conformance.ran) == set(subjects) - {NONZERO}
    assert "NonZero" in conformance.refused[NONZERO]


@pytest.mark.slow
def test_the_plugin_keeps_the_contract_on_every_operator_of_the_kit() -> None:
    check(RTX, models(), 1)


def test_both_editions_keep_it_with_their_variants() -> None:
    check(TENSORRT, models(SOME), 2)


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_it_keeps_the_contract_as_far_as_a_machine_without_a_gpu_can_tell(rtx: Any) -> None:
    toolchain = Toolchain("tensorrt_rtx", plugin_over(rtx))

    conformance = check_plugin(toolchain, models(SOME), host=HOST, runs=False, max_variants=1)

    assert set(conformance.ran) == set(models(SOME)) - {NONZERO}
    assert "NonZero" in conformance.refused[NONZERO]
