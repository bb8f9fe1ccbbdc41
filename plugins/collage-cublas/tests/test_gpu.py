"""Numbers of every epilogue, type and transposition, all variants, and calls in a CUDA graph.

Each test runs on two machines: in the default run on one without a GPU, where the library is emulated on a fake device,
and with `-m gpu` on a real one, which needs the library and CuPy. Nobody has run the latter yet.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
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
    Weights,
)
from collage_core.device import DeviceStream, OpenDevice, buffer_on, open_device, placed_on
from collage_core.errors import DeviceError
from collage_core.fusion import kernel_function
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.random_inputs import random_inputs
from collage_core.reference import evaluate
from collage_core.registry import Toolchain
from collage_core.testing import FakeDevice, GraphBuilder, check_plugin
from collage_core.testing.kernel_check import MemoryBlobs
from collage_cublas.plugin import CublasPlugin

from .emulator import Emulator
from .machine import HOST, plugin_over, proposals

DTYPES = ("FLOAT", "FLOAT16", "BFLOAT16")
TOLERANCES = {"FLOAT": 1e-4, "FLOAT16": 1e-2, "BFLOAT16": 5e-2}
EPILOGUES = (
    "",
    "bias",
    "residual",
    "Relu",
    "Gelu",
    "bias Relu",
    "bias Gelu",
    "bias residual Relu",
    "bias residual Gelu",
)
LAYOUTS = tuple(itertools.product((False, True), (False, True), ((), (3,))))
"""Whether each factor is given transposed, and the batch."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Where a test runs.

    Attributes:
        host: What the plugin is told of it.
        plugin: The plugin, over the library or an emulation.
        opening: Opens its device.
        replays: How often a graph is launched.
        variants: How many of a candidate's are checked against the reference.
    """

    host: Host
    plugin: CublasPlugin
    opening: OpenDevice
    replays: int
    variants: int

    @property
    def targets(self) -> dict[str, Target]:
        answer = self.plugin.collage_targets(self.host)
        assert not isinstance(answer, Unsupported), answer.reason
        return {target.name: target for target in answer if target.device == "cuda:0"}


def emulated() -> Machine:
    return Machine(host=HOST, plugin=plugin_over(Emulator()), opening=FakeDevice("cuda:0").open, replays=10, variants=1)


def real() -> Machine:
    host, plugin = Host.this(), CublasPlugin()
    answer = plugin.collage_targets(host)
    if isinstance(answer, Unsupported):
        pytest.skip(answer.reason)
    try:
        open_device("cuda:0")
    except DeviceError as error:
        pytest.skip(str(error))
    return Machine(host=host, plugin=plugin, opening=open_device, replays=1000, variants=8)


MACHINES = {"emulated": emulated, "real": real}
REAL = pytest.param("real", marks=pytest.mark.gpu)


@pytest.fixture(params=["emulated", REAL])
def machine(request: pytest.FixtureRequest) -> Machine:
    return MACHINES[request.param]()


@pytest.fixture
def device(machine: Machine) -> DeviceStream:
    stream = machine.opening("cuda:0")
    stream.activate()
    return stream


def product(
    dtype: str, epilogue: str, *, transpose_a: bool = False, transpose_b: bool = False, batch: tuple[int, ...] = ()
) -> onnx_ir.Model:
    """`[..., 48, 64]` times `[..., 64, 40]`, each perhaps given the other way round."""
    g = GraphBuilder("product")
    element = onnx_ir.DataType[dtype]
    factors = []
    for name, matrix, turned in (("x", (48, 64), transpose_a), ("z", (64, 40), transpose_b)):
        value = g.input(name, *batch, *(matrix[::-1] if turned else matrix), dtype=element)
        rank = len(batch) + 2
        order = [*range(rank - 2), rank - 1, rank - 2]
        factors.append(g.op("Transpose", value, perm=order) if turned else value)
    value = g.op("MatMul", *factors)
    if "bias" in epilogue:
        value = g.op("Add", value, g.input("b", 40, dtype=element))
    if "residual" in epilogue:
        value = g.op("Add", value, g.input("r", *batch, 48, 40, dtype=element))
    if "Relu" in epilogue:
        value = g.op("Relu", value)
    if "Gelu" in epilogue:
        value = g.op("Gelu", value, approximate="tanh")
    return g.model(value)


def combinations() -> Iterator[Any]:
    """On a GPU all of them; emulated each epilogue once, types and layouts in turn."""
    for number, epilogue in enumerate(EPILOGUES):
        layouts = [LAYOUTS[number % len(LAYOUTS)]]
        yield pytest.param(emulated, DTYPES[number % len(DTYPES)], epilogue, layouts, id=f"emulated-{epilogue}")
    for dtype, epilogue in itertools.product(DTYPES, EPILOGUES):
        yield pytest.param(real, dtype, epilogue, LAYOUTS, id=f"real-{dtype}-{epilogue}", marks=pytest.mark.gpu)


@pytest.mark.parametrize(("on", "dtype", "epilogue", "layouts"), list(combinations()))
def test_every_epilogue_type_and_transposition_is_right(
    on: Any, dtype: str, epilogue: str, layouts: Sequence[tuple[bool, bool, tuple[int, ...]]]
) -> None:
    machine = on()
    models = {
        f"{a} {b} {batch}": product(dtype, epilogue, transpose_a=a, transpose_b=b, batch=batch)
        for a, b, batch in layouts
    }

    conformance = check_plugin(
        Toolchain("cublas", machine.plugin),
        models,
        host=machine.host,
        open_device=machine.opening,
        tolerance=TOLERANCES[dtype],
        max_variants=machine.variants,
    )

    assert set(conformance.ran) == set(models)


def lowered(
    model: onnx_ir.Model, target: Target, machine: Machine, folder: Path
) -> tuple[KernelFunction, list[Artifact]]:
    """The largest candidate and its variants."""
    candidate = max(proposals(model, target).candidates, key=lambda each: len(each.sub_graph.names))
    function = kernel_function(candidate.sub_graph, "kernel")
    build = BuildContext(
        threads=1,
        effort=2,
        deadline_s=120,
        workspace_limit_bytes=1 << 25,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=folder,
        max_variants=16,
        host=machine.host,
    )
    answer = machine.plugin.collage_lower(target, function, build)
    assert isinstance(answer, Iterator), answer
    return function, list(answer)


def bound(
    artifact: Artifact, function: KernelFunction, target: Target, machine: Machine, device: DeviceStream, feeds: Any
) -> tuple[BoundCall, Buffer]:
    """The call, and where it writes."""
    weights = Weights({content: function.constant(name) for name, content in function.constants.items()})
    placed = {key: placed_on(device, key, weights[key]) for key in artifact.constants.values()}
    run = RunContext(threads=1, device="cuda:0", stream=device.handle, capture=True, placed=placed)
    kernel = machine.plugin.collage_load(target, artifact, run)
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


def test_variants_differ_and_each_keeps_its_limit_and_computes_the_same(
    machine: Machine, device: DeviceStream, tmp_path: Path
) -> None:
    target = machine.targets["cublas@cuda:0"]
    model = product("FLOAT16", "bias Relu")
    function, variants = lowered(model, target, machine, tmp_path)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values[function.outputs[0].name].astype(np.float32)

    assert len({each.variant for each in variants}) == len(variants) > 1
    for artifact in variants:
        assert artifact.workspace_bytes <= 1 << 25
        call, output = bound(artifact, function, target, machine, device, feeds)
        call()
        found = fetched(device, output).astype(np.float32)
        np.testing.assert_allclose(found, right, atol=1e-2 * np.abs(right).max(), rtol=0, err_msg=artifact.variant)


LIMITS = {"": 1e-6, "tf32": 1e-2, "fp16": 1e-2, "bf16": 5e-2}
"""Most a product of 64 terms is off, relative to its largest element, by the target's precision."""


@pytest.mark.parametrize("weight", [False, True], ids=["two inputs", "a weight"])
def test_a_lower_precision_is_off_unless_asked_for(
    weight: bool, machine: Machine, device: DeviceStream, tmp_path: Path
) -> None:
    g = GraphBuilder("product")
    model = g.model(g.op("MatMul", g.input("x", 48, 64), g.weight("z", 64, 40) if weight else g.input("z", 64, 40)))
    feeds = random_inputs(DataflowGraph(model), seed=0)
    z = model.graph.initializers["z"].const_value.numpy() if weight else feeds["z"]  # type: ignore[union-attr]
    right = feeds["x"].astype(np.float64) @ z.astype(np.float64)
    targets = {target.option("precision"): target for target in machine.targets.values()}
    for precision, target in targets.items():
        function, variants = lowered(model, target, machine, tmp_path)
        ways = {artifact.variant.partition("_")[0]: artifact for artifact in reversed(variants)}
        for way, artifact in ways.items():
            call, output = bound(artifact, function, target, machine, device, feeds)
            call()
            error = np.abs(fetched(device, output) - right).max() / np.abs(right).max()
            assert error < LIMITS[precision], (precision, artifact.variant)
            # the library may round where it is only allowed to; what is held in 16 bits is rounded
            assert error > 1e-6 or way != "cast"
        assert {"cast", "fast"} <= set(ways) or precision in ("", "tf32")


@pytest.mark.parametrize(("name", "dtype"), [("cublas@cuda:0", "FLOAT16"), ("cublas(precision=fp16)@cuda:0", "FLOAT")])
def test_a_call_in_a_graph_gives_the_same_bits_a_thousand_times(
    name: str, dtype: str, machine: Machine, device: DeviceStream, tmp_path: Path
) -> None:
    model = product(dtype, "bias residual Gelu", batch=(3,))
    target = machine.targets[name]
    function, variants = lowered(model, target, machine, tmp_path)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    assert variants
    for artifact in variants:
        assert artifact.capturable
        call, output = bound(artifact, function, target, machine, device, feeds)
        call()
        eager = fetched(device, output)
        device.write(output.pointer, np.full_like(eager, -1))

        graph = device.capture(call)

        assert (fetched(device, output) == -1).all()  # captured, not run
        for _ in range(machine.replays):
            graph.launch()
            bits = fetched(device, output).tobytes()  # waits, too: what is bound goes with the variant
            assert bits == eager.tobytes() or not artifact.deterministic, artifact.variant
