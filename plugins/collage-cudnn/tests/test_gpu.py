"""Numbers of every form and type, all variants, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where the library is emulated on a fake device,
and with `-m gpu` on a real one, which needs the library and CuPy. Nobody has run the latter yet.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Host,
    KernelFunction,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
)
from collage_core.device import DeviceStream, OpenDevice, buffer_on, open_device, placed_on
from collage_core.errors import DeviceError
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.random_inputs import random_inputs
from collage_core.reference import evaluate
from collage_core.registry import Toolchain
from collage_core.testing import FakeDevice, check_plugin
from collage_core.testing.kernel_check import MemoryBlobs
from collage_cudnn.plugin import CudnnPlugin

from .cases import (
    attention,
    batch_norm,
    block,
    convolution,
    instance_norm,
    layer_norm,
    product,
    rms_norm,
)
from .checking import TOLERANCES
from .emulator import Emulator
from .machine import HOST, largest, plugin_over

Make = Callable[[onnx_ir.DataType], onnx_ir.Model]
WIDE = {"x": (2, 64, 14, 14), "kernel": (64, 64, 3, 3), "pads": [1] * 4}
"""Channels as tensor cores want them."""
FORMS: dict[str, Make] = {
    "convolution": lambda dtype: convolution("Relu", **WIDE, dtype=dtype),
    "residual": lambda dtype: convolution("Relu", **WIDE, residual=(2, 64, 14, 14), dtype=dtype),
    "SiLU": lambda dtype: convolution("Silu", **WIDE, dtype=dtype),
    "groups": lambda dtype: convolution(
        "Relu", x=(2, 64, 14, 14), kernel=(64, 8, 3, 3), group=8, pads=[1] * 4, dtype=dtype
    ),
    "depthwise": lambda dtype: convolution(
        "Relu6", x=(2, 64, 14, 14), kernel=(64, 1, 3, 3), group=64, pads=[1] * 4, dtype=dtype
    ),
    "stem": lambda dtype: convolution("Relu", x=(1, 3, 32, 32), kernel=(64, 3, 7, 7), strides=[2, 2], dtype=dtype),
    "one axis": lambda dtype: convolution("Relu", x=(2, 32, 40), kernel=(64, 32, 3), pads=[1, 1], dtype=dtype),
    "three axes": lambda dtype: convolution(
        "Relu", x=(1, 32, 6, 7, 8), kernel=(32, 32, 3, 3, 3), pads=[1] * 6, dtype=dtype
    ),
    "transposed": lambda dtype: convolution(
        operator="ConvTranspose", bias="", x=(2, 64, 7, 7), kernel=(64, 32, 4, 4), strides=[2, 2], dtype=dtype
    ),
    "product": lambda dtype: product("Gelu", a=(48, 64), b=(64, 40), bias=True, dtype=dtype),
    "attention": lambda dtype: attention("added", queries=64, keys=64, size=64, dtype=dtype),
    "causal attention of groups": lambda dtype: attention(
        "causal", queries=64, keys=64, size=64, key_heads=2, dtype=dtype
    ),
    "layer norm": layer_norm,
    "RMS norm": rms_norm,
    "instance norm": lambda dtype: instance_norm(2, 64, 14, 14, dtype=dtype),
    "batch norm": lambda dtype: batch_norm(2, 64, 14, 14, activation="Relu", dtype=dtype),
    "region": block,
}
DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a test runs: what the plugin is told of it, the plugin, its device, and how often a graph is launched."""

    host: Host
    plugin: CudnnPlugin
    opening: OpenDevice
    replays: int

    @property
    def target(self) -> Target:
        answer = self.plugin.collage_targets(self.host)
        assert not isinstance(answer, Unsupported), answer.reason
        return next(target for target in answer if target.name == "cudnn@cuda:0")


def emulated() -> Machine:
    return Machine(host=HOST, plugin=plugin_over(Emulator()), opening=FakeDevice("cuda:0").open, replays=10)


def real() -> Machine:
    host, plugin = Host.this(), CudnnPlugin()
    answer = plugin.collage_targets(host)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    try:
        open_device("cuda:0")
    except DeviceError as error:
        pytest.skip(str(error))
    return Machine(host=host, plugin=plugin, opening=open_device, replays=1000)


MACHINES = {"emulated": emulated, "real": real}


@pytest.fixture(params=["emulated", pytest.param("real", marks=pytest.mark.gpu("cupy", "cudnn"))])
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]()


@pytest.fixture
def device(machine: Machine) -> DeviceStream:
    stream = machine.opening("cuda:0")
    stream.activate()
    return stream


def combinations() -> Iterator[Any]:
    """On a GPU all of them; emulated a few, since every form is computed there by other tests."""
    for number, form in enumerate(("residual", "attention", "layer norm")):
        yield pytest.param(emulated, DTYPES[-1 - number % 2], form, id=f"emulated-{form}")
    for dtype in DTYPES:
        for form in FORMS:
            yield pytest.param(real, dtype, form, id=f"real-{dtype}-{form}", marks=pytest.mark.gpu("cupy", "cudnn"))


@pytest.mark.parametrize(("on", "dtype", "form"), list(combinations()))
def test_every_form_is_right_in_every_type_or_refused_with_a_reason(on: Any, dtype: str, form: str) -> None:
    machine = on()

    conformance = check_plugin(
        Toolchain("cudnn", machine.plugin),
        {form: FORMS[form](onnx_ir.DataType[dtype])},
        host=machine.host,
        open_device=machine.opening,
        tolerance=TOLERANCES[dtype],
        max_variants=4,
    )

    assert form in conformance.ran or conformance.refused[form]
    if dtype != "FLOAT":
        assert form in conformance.ran


def lowered(model: onnx_ir.Model, machine: Machine, folder: Path) -> tuple[KernelFunction, list[Artifact]]:
    """The largest candidate and its variants."""
    function = largest(model)
    build = BuildContext(
        threads=1,
        effort=2,
        deadline_s=300,
        workspace_limit_bytes=1 << 26,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=folder,
        max_variants=8,
        host=machine.host,
    )
    answer = machine.plugin.collage_lower(machine.target, function, build)
    assert isinstance(answer, Iterator), answer
    return function, list(answer)


def bound(
    artifact: Artifact, function: KernelFunction, machine: Machine, device: DeviceStream, feeds: Any
) -> tuple[BoundCall, Buffer]:
    """The call, and where it writes."""
    names = {content: name for name, content in function.constants.items()}
    constants = {content: function.constant(names[content]) for content in artifact.constants.values()}
    run = RunContext(
        threads=1,
        device="cuda:0",
        constants=constants,
        placed={content: placed_on(device, content, array) for content, array in constants.items()},
        stream=device.handle,
        capture=True,
    )
    kernel = machine.plugin.collage_load(machine.target, artifact, run)
    assert not isinstance(kernel, Unsupported), kernel.reason
    inputs = [placed_on(device, spec.name, feeds[spec.name]) for spec in function.inputs]
    output = buffer_on(device, function.outputs[0])
    scratch = TensorSpec(name="workspace", dtype=onnx_ir.DataType.UINT8, shape=(artifact.workspace_bytes,))
    return kernel.bind(inputs, [output], buffer_on(device, scratch) if artifact.workspace_bytes else None), output


def fetched(device: DeviceStream, buffer: Buffer) -> np.ndarray[Any, Any]:
    array = np.empty(buffer.spec.static_shape, buffer.spec.numpy_dtype)
    device.read(array, buffer.pointer)
    device.synchronise()
    return array


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
def test_variants_differ_and_a_graph_of_each_gives_the_same_bits_every_time(
    dtype: str, machine: Machine, device: DeviceStream, tmp_path: Path
) -> None:
    model = FORMS["convolution"](onnx_ir.DataType[dtype])
    function, variants = lowered(model, machine, tmp_path)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values[str(model.graph.outputs[0].name)].astype(np.float32)
    feeds = {spec.name: next(iter(feeds.values())) for spec in function.inputs}  # the one image, by its name inside

    assert len({each.variant for each in variants}) == len(variants) > 1
    assert {each.variant.partition("_")[0] for each in variants} == {"nchw", "nhwc"}
    for artifact in variants:
        assert artifact.workspace_bytes <= 1 << 26
        assert artifact.capturable
        call, output = bound(artifact, function, machine, device, feeds)
        call()
        eager = fetched(device, output)
        limit = TOLERANCES[dtype] * np.abs(right).max()
        np.testing.assert_allclose(eager.astype(np.float32), right, atol=limit, rtol=0, err_msg=artifact.variant)
        device.write(output.pointer, np.full_like(eager, -1))

        graph = device.capture(call)

        assert (fetched(device, output) == -1).all()  # captured, not run
        for _ in range(machine.replays):
            graph.launch()
            bits = fetched(device, output).tobytes()  # waits, too: what is bound goes with the variant
            assert bits == eager.tobytes() or not artifact.deterministic, artifact.variant
