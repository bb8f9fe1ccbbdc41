"""The whole contract, by the kit that core ships: on a fake device whose kernels are interpreted, and on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Unsupported
from collage_core.registry import Toolchain
from collage_testing import GraphBuilder, dense, operator_models
from collage_testing.kit import Conformance, FakeDevice, check_plugin
from collage_triton.interpreter import Interpreter
from collage_triton.machine import usable_devices
from collage_triton.plugin import TritonPlugin, plugin

from .emulation import HOST, VERSIONS, emulated

SOME = ("Add of two inputs", "Softmax", "TopK, one output not wanted")
NOT_TAKEN = {"TopK, one output not wanted", "NonZero, its shape not known before"}
"""Of the models of single operators, those that are left to others."""


def groups() -> Mapping[str, onnx_ir.Model]:
    """A product with an epilogue, rows with what comes before, and a group of two outputs that is none."""
    g = GraphBuilder("normalised")
    x = g.op("Add", g.input("x", 5, 24), g.weight("b", 24))
    normal = g.op("LayerNormalization", x, g.weight("scale", 24), axis=-1)
    both = GraphBuilder("shared")
    shared = both.op("Exp", both.input("x", 3, 7))
    return {
        "dense": dense(activation="Gelu"),
        "normalised": g.model(g.op("Relu", normal)),
        "shared": both.model(both.op("Neg", shared), both.op("Transpose", shared)),
    }


def check(models: Mapping[str, onnx_ir.Model], interpreter: Interpreter, max_variants: int = 1) -> Conformance:
    device = FakeDevice("cuda:0")
    toolchain = Toolchain("triton", emulated(device, interpreter))
    return check_plugin(toolchain, models, host=HOST, open_device=device.open, max_variants=max_variants)


def test_the_plugin_keeps_the_contract(interpreter: Interpreter) -> None:
    some = {name: model for name, model in operator_models().items() if name in SOME}

    conformance = check({**some, **groups()}, interpreter)

    assert conformance.refused == {"TopK, one output not wanted": "no predicate takes TopK"}
    assert set(conformance.ran) == (set(some) | set(groups())) - NOT_TAKEN
    targets = conformance.ran["Softmax"]  # one candidate, on each target
    # product, bias, activation, all that hang together; and the same of the sum, the norm and what follows
    assert conformance.ran["dense"] == conformance.ran["normalised"] == 6 * targets
    assert conformance.ran["shared"] == 3 * targets


@pytest.mark.slow
def test_every_operator_it_takes_keeps_the_contract(interpreter: Interpreter) -> None:
    conformance = check(operator_models(), interpreter, max_variants=8)

    assert set(conformance.refused) == NOT_TAKEN
    assert set(conformance.ran) == set(operator_models()) - NOT_TAKEN


@pytest.mark.slow
def test_a_machine_without_a_gpu_compiles_what_it_cannot_run() -> None:
    """`runs=False`: real cubins for the H200 that is not there; loading is refused for want of a stream."""
    pytest.importorskip("triton")

    conformance = check_plugin(
        Toolchain("triton", TritonPlugin(VERSIONS.get)), groups(), host=HOST, max_variants=1, runs=False
    )

    assert set(conformance.ran) == set(groups())


@pytest.mark.gpu("cupy", "triton")
def test_the_plugin_keeps_the_contract_on_a_gpu() -> None:
    usable = usable_devices(this_host())
    if isinstance(usable, Unsupported):
        pytest.skip(usable.reason)

    conformance = check_plugin(Toolchain("triton", plugin), {**operator_models(), **groups()})

    assert set(conformance.refused) == NOT_TAKEN
