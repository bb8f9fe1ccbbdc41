"""Numbers of every type, precision and activation by both generations of kernels, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where nvcc and its libraries are emulated on a
fake device, and with `-m gpu` on a real one, which needs nvcc, the headers and CuPy. It compiles some eighty kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx_ir
import pytest

from collage.reference import discrepancy_of, evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import KernelFunction, Target, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cutlass.plugin import CutlassPlugin
from collage_testing.kit import DeviceMachine, FakeDevice, check_plugin
from collage_testing.kit.gpu_plugins import HOST

from .cases import ACTIVATIONS, BFLOAT16, FLOAT, FLOAT16, convolution, product
from .checking import TOLERANCES
from .emulator import FakeCompiler
from .machine import largest, plugin_over

On = Callable[[], DeviceMachine]


def emulated() -> DeviceMachine:
    return DeviceMachine.fake(Toolchain("cutlass", plugin_over(FakeCompiler())), HOST, FakeDevice("cuda:0"))


@functools.cache
def real() -> DeviceMachine:
    """The same machine for all tests, which compile each kernel once."""
    machine = DeviceMachine.real(Toolchain("cutlass", CutlassPlugin()))
    if isinstance(machine, Unsupported):
        pytest.skip(machine.reason)
    return machine


ON_GPU = pytest.mark.gpu("cupy")
BOTH = pytest.mark.parametrize("on", [emulated, pytest.param(real, marks=ON_GPU)])

LIMITS = {**TOLERANCES, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}
"""Most a result is off, relative to its scale, by the model's type or by what the target rounds float32 to."""


def cases(dtype: onnx_ir.DataType, activation: str) -> dict[str, onnx_ir.Model]:
    """A product, a batch of them whose second factors are given transposed, and a convolution."""
    common: dict[str, Any] = {"dtype": dtype}
    return {
        "product": product(activation, a=(48, 64), b=(64, 40), constant=True, bias=(40,), after=(48, 40), **common),
        "batch": product(activation, a=(3, 48, 64), b=(3, 64, 40), turned=True, scale=(40,), **common),
        "convolution": convolution(
            activation, x=(2, 16, 12, 9), kernel=(24, 16, 3, 3), inside=True, before=(2, 24, 12, 9),
            attributes={"pads": [1, 1, 1, 1]}, **common,
        ),
    }  # fmt: skip


def right_type(function: KernelFunction) -> str:
    dtype = function.outputs[0].dtype
    assert dtype is not None
    return str(dtype.name)


def check(machine: DeviceMachine, target: Target, model: onnx_ir.Model, folder: Path, *, variants: int) -> list[str]:
    """Compares variants of the largest candidate with the reference, on what that has for its inputs.

    Returns:
        Their names.
    """
    function = largest(model, target)
    values = evaluate(model, random_inputs(DataflowGraph(model), seed=0)).values
    right = values[function.outputs[0].name]
    threads = machine.host.physical_cores
    artifacts = machine.variants(function, target, folder, max_variants=variants, threads=threads)
    for artifact in artifacts:
        [found] = machine.bound(function, target, artifact, values).run()
        error = discrepancy_of(found, right).error
        assert error < LIMITS[target.option("precision") or right_type(function)], artifact.variant
    return [artifact.variant for artifact in artifacts]


@BOTH
@pytest.mark.parametrize("case", ["product", "batch", "convolution"])
@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BFLOAT16], ids=lambda dtype: dtype.name)
def test_every_type_and_precision_is_right(on: On, dtype: onnx_ir.DataType, case: str, tmp_path: Path) -> None:
    machine = on()
    targets = machine.targets if dtype == FLOAT else (machine.target(),)
    assert len(targets) == (4 if dtype == FLOAT else 1)
    for target in targets:
        # where there are kernels of CUTLASS 3.x, one of these and one of 2.x
        assert len(check(machine, target, cases(dtype, "Silu")[case], tmp_path, variants=2)) == 2


def activations() -> Iterator[Any]:
    """On a GPU all of them; the emulation's are tested elsewhere, so but one."""
    yield pytest.param(emulated, "HardTanh", id="emulated")
    for activation in ("", *ACTIVATIONS.values()):
        yield pytest.param(real, activation, id=f"real-{activation}", marks=ON_GPU)


@pytest.mark.parametrize(("on", "activation"), list(activations()))
def test_every_activation_is_right(on: On, activation: str, tmp_path: Path) -> None:
    machine = on()

    assert check(machine, machine.target(), cases(FLOAT16, activation)["product"], tmp_path, variants=2)


@BOTH
@pytest.mark.parametrize("case", ["product", "convolution"])
def test_all_tiles_agree_and_a_call_in_a_graph_gives_the_same_bits(on: On, case: str, tmp_path: Path) -> None:
    machine = on()
    model, target = cases(FLOAT16, "Silu")[case], machine.target()
    function = largest(model, target)
    values = evaluate(model, random_inputs(DataflowGraph(model), seed=0)).values
    most, threads = 16 if machine.is_real else 3, machine.host.physical_cores

    variants = machine.variants(function, target, tmp_path, max_variants=most, threads=threads)

    assert len({each.variant for each in variants}) == len(variants) > 1
    for artifact in variants:
        kernel = machine.bound(function, target, artifact, values)
        [found] = kernel.check_replays(1000 if machine.is_real else 5)
        assert discrepancy_of(found, values[function.outputs[0].name]).error < LIMITS["FLOAT16"], artifact.variant


@ON_GPU
def test_the_plugin_keeps_the_contract_on_a_gpu() -> None:
    """The default run has the same on a fake device, in `test_contract.py`."""
    machine = real()
    models = {name: model for name, model in cases(FLOAT, "Silu").items() if name != "batch"}

    conformance = check_plugin(
        machine.toolchain, models, host=machine.host, open_device=machine.providers.open, tolerance=2e-2, max_variants=1
    )

    assert set(conformance.ran) == set(models)
