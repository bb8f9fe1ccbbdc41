"""Numbers of every type and epilogue by all tiles that are tried, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where nvcc and its libraries are emulated on a
fake device, and with `-m gpu` on a real one, which needs nvcc, the headers and CuPy. Nobody has run the latter yet.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import (
    Artifact,
    BuildContext,
    Host,
    KernelFunction,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    Weights,
)
from collage_core.device import OpenDevice, buffer_on, open_device, placed_on
from collage_core.errors import DeviceError
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.random_inputs import random_inputs
from collage_core.registry import Toolchain
from collage_core.testing import FakeDevice, check_plugin
from collage_cutlass.plugin import CutlassPlugin

from .cases import ACTIVATIONS, BFLOAT16, FLOAT, FLOAT16, convolution, product
from .checking import TOLERANCES
from .emulator import FakeCompiler
from .machine import HOST, largest, plugin_over

DTYPES = (FLOAT, FLOAT16, BFLOAT16)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a test runs.

    Attributes:
        host: What the plugin is told of it.
        plugin: The plugin, over nvcc or an emulation.
        opening: Opens its device.
        replays: How often a graph is launched.
        variants: How many of a candidate's are checked against the reference.
    """

    host: Host
    plugin: CutlassPlugin
    opening: OpenDevice
    replays: int
    variants: int

    @property
    def target(self) -> Target:
        answer = self.plugin.collage_targets(self.host)
        assert not isinstance(answer, Unsupported), answer.reason
        return answer[0]


def emulated() -> Machine:
    plugin = plugin_over(FakeCompiler())
    return Machine(host=HOST, plugin=plugin, opening=FakeDevice("cuda:0").open, replays=10, variants=1)


def real() -> Machine:
    host, plugin = Host.this(), CutlassPlugin()
    answer = plugin.collage_targets(host)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    try:
        open_device("cuda:0")
    except DeviceError as error:
        pytest.skip(str(error))
    return Machine(host=host, plugin=plugin, opening=open_device, replays=1000, variants=2)


def cases(dtype: onnx_ir.DataType, activation: str) -> dict[str, onnx_ir.Model]:
    """What one compiled epilogue is about: a product, a batch of them, and a convolution."""
    common: dict[str, Any] = {"dtype": dtype}
    return {
        "product": product(activation, a=(48, 64), b=(64, 40), constant=True, bias=(40,), after=(48, 40), **common),
        "batch": product(activation, a=(3, 48, 64), b=(3, 64, 40), turned=True, scale=(40,), **common),
        "convolution": convolution(
            activation, x=(2, 16, 12, 9), kernel=(24, 16, 3, 3), inside=True, before=(2, 24, 12, 9),
            attributes={"pads": [1, 1, 1, 1]}, **common,
        ),
    }  # fmt: skip


def combinations() -> Iterator[Any]:
    """On a GPU all of them; emulated each type once, with an activation each."""
    for dtype, activation in zip(DTYPES, ("Gelu", "Silu", "HardTanh"), strict=True):
        yield pytest.param(emulated, dtype, activation, id=f"emulated-{dtype.name}-{activation}")
    for dtype, activation in itertools.product(DTYPES, ("", *ACTIVATIONS.values())):
        yield pytest.param(real, dtype, activation, id=f"real-{dtype.name}-{activation}", marks=pytest.mark.gpu("cupy"))


@pytest.mark.parametrize(("on", "dtype", "activation"), list(combinations()))
def test_every_type_and_activation_is_right(on: Any, dtype: onnx_ir.DataType, activation: str) -> None:
    machine, models = on(), cases(dtype, activation)

    conformance = check_plugin(
        Toolchain("cutlass", machine.plugin),
        models,
        host=machine.host,
        open_device=machine.opening,
        tolerance=TOLERANCES[dtype.name] if dtype != FLOAT else 2e-3,  # the kit tries TF32 too
        max_variants=machine.variants,
    )

    assert set(conformance.ran) == set(models)


def lowered(model: onnx_ir.Model, machine: Machine, build: BuildContext) -> tuple[KernelFunction, list[Artifact]]:
    function = largest(model)
    answer = machine.plugin.collage_lower(machine.target, function, dataclasses.replace(build, host=machine.host))
    assert isinstance(answer, Iterator), answer
    return function, list(answer)


@pytest.mark.parametrize("on", [emulated, pytest.param(real, marks=pytest.mark.gpu("cupy"))])
@pytest.mark.parametrize("kind", ["product", "convolution"])
def test_all_tiles_agree_and_a_call_in_a_graph_gives_the_same_bits(on: Any, kind: str, build: BuildContext) -> None:
    machine = on()
    device = machine.opening("cuda:0")
    device.activate()
    model = cases(FLOAT16, "Silu")[kind]
    function, variants = lowered(model, machine, build)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    weights = Weights({content: function.constant(name) for name, content in function.constants.items()})
    # what is negated outside the kernel is nothing that is fed to the model
    ones = {spec.name: np.ones(spec.static_shape, spec.numpy_dtype) for spec in function.inputs}
    inputs = [placed_on(device, name, feeds.get(name, each)) for name, each in ones.items()]
    results = []
    for artifact in variants:
        placed = {content: placed_on(device, content, weights[content]) for content in artifact.constants.values()}
        run = RunContext(
            threads=1, device="cuda:0", stream=device.handle, capture=True, placed=placed, constants=weights
        )
        kernel = machine.plugin.collage_load(machine.target, artifact, run)
        assert not isinstance(kernel, Unsupported), kernel.reason
        output = buffer_on(device, function.outputs[0])
        scratch = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(artifact.workspace_bytes,))
        call = kernel.bind(inputs, [output], buffer_on(device, scratch) if artifact.workspace_bytes else None)

        def fetched(place: Any = output) -> Any:
            array = np.empty(place.spec.static_shape, place.spec.numpy_dtype)
            device.read(array, place.pointer)
            device.synchronise()
            return array

        call()
        results.append(eager := fetched())
        graph = device.capture(call)
        for _ in range(machine.replays):
            graph.launch()
        assert fetched().tobytes() == eager.tobytes(), artifact.variant
    assert len(results) == len(variants) > 1
    for result in results:
        np.testing.assert_allclose(result.astype(np.float32), results[0].astype(np.float32), atol=2e-2)
