"""What is tried on a device: by `test_gpu` on one that is there, by `test_running` on a fake one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    KernelFunction,
    RunContext,
    Target,
    TensorSpec,
    Unsupported,
    workspace_of,
)
from collage_core.device import DeviceStream, buffer_on
from collage_core.ir.dataflow import DataflowGraph
from collage_core.measure.random_inputs import random_inputs
from collage_core.passes.call_sites import call_sites
from collage_core.reference import evaluate
from collage_core.reference.compare import relative_error
from collage_core.registry import Registry, Toolchain
from collage_core.runtime import Executable, Session, load_package, loader, save_package
from collage_core.testing import GraphBuilder, mnist
from collage_tensorrt.plugin import TensorRtPlugin
from tests.unit.runtime.fakes import split

from .machine import build_context, lowered, whole

D = onnx_ir.DataType
TOLERANCES = {D.FLOAT: 1e-4, D.FLOAT16: 1e-2, D.BFLOAT16: 5e-2}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """Where kernels are tried.

    Attributes:
        plugin: Of one edition.
        target: Its target.
        host: The machine.
        stream: Of the device.
        folder: To write in.
    """

    plugin: TensorRtPlugin
    target: Target
    host: Host
    stream: DeviceStream
    folder: Path

    def lowered(self, function: KernelFunction, **fields: Any) -> list[Artifact]:
        return lowered(self.plugin, function, build_context(self.folder, host=self.host, **fields), self.target)


def chain(dtype: D) -> onnx_ir.Model:
    """A product with what follows it, a convolution and a normalisation: all in one type, with two outputs."""
    g = GraphBuilder("chain")

    def typed(value: onnx_ir.Value) -> onnx_ir.Value:
        return value if dtype is D.FLOAT else g.op("Cast", value, to=int(dtype))

    x = g.input("x", 2, 4, 8, 8, dtype=dtype)
    value = g.op("Conv", x, typed(g.weight("k", 8, 4, 3, 3)), pads=[1, 1, 1, 1])
    kept = g.op("Relu", value)
    value = g.op("Softmax", g.op("MatMul", kept, typed(g.weight("w", 8, 8))), axis=-1)
    return g.model(value, kept)


MODELS: Mapping[str, onnx_ir.Model] = {"mnist": mnist(), **{dtype.name: chain(dtype) for dtype in TOLERANCES}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bound:
    """A kernel bound to places of its own."""

    call: BoundCall
    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    keeps: Any


def bound(place: Place, function: KernelFunction, artifact: Artifact, feeds: Mapping[str, Any]) -> Bound:
    place.stream.activate()
    run = RunContext(threads=1, device=place.stream.name, stream=place.stream.handle, capture=True)
    kernel = place.plugin.collage_load(place.target, artifact, run)
    assert not isinstance(kernel, Unsupported), kernel.reason
    inputs = [buffer_on(place.stream, spec) for spec in function.inputs]
    for buffer in inputs:
        place.stream.write(buffer.pointer, np.ascontiguousarray(feeds[buffer.spec.name]))
    outputs = [buffer_on(place.stream, spec) for spec in function.outputs]
    size = workspace_of(artifact, kernel)
    scratch = TensorSpec(name="workspace", dtype=D.UINT8, shape=(size,))
    workspace = buffer_on(place.stream, scratch) if size else None
    place.stream.synchronise()
    return Bound(call=kernel.bind(inputs, outputs, workspace), inputs=inputs, outputs=outputs, keeps=workspace)


def read(place: Place, buffer: Buffer) -> np.ndarray[Any, Any]:
    array = np.empty(buffer.spec.static_shape, buffer.spec.numpy_dtype)
    place.stream.read(array, buffer.pointer)
    place.stream.synchronise()
    return array


def numbers_are_right(place: Place, model: onnx_ir.Model) -> None:
    """Every variant of the whole model, against ONNX's reference."""
    function = whole(model)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    right = evaluate(model, feeds).values
    variants = place.lowered(function, effort=2)
    assert len({each.variant for each in variants}) == len(variants) == 2
    for artifact in variants:
        kernel = bound(place, function, artifact, feeds)
        kernel.call()
        for buffer in kernel.outputs:
            dtype = buffer.spec.dtype
            assert dtype is not None
            error = relative_error(read(place, buffer), right[buffer.spec.name])
            assert error < TOLERANCES[dtype], (artifact.variant, buffer.spec.name)


def a_graph_gives_the_same_bits(place: Place, model: onnx_ir.Model, replays: int) -> None:
    """After one call that warms it up, a call is captured without running, and each launch gives what it gave."""
    function = whole(model)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    [artifact] = place.lowered(function)
    kernel = bound(place, function, artifact, feeds)
    kernel.call()
    eager = [read(place, buffer) for buffer in kernel.outputs]
    for buffer, array in zip(kernel.outputs, eager, strict=True):
        place.stream.write(buffer.pointer, np.full_like(array, -1))
    place.stream.synchronise()

    graph = place.stream.capture(kernel.call)

    assert all((read(place, buffer) == -1).all() for buffer in kernel.outputs)  # captured, not run
    for _ in range(replays):
        graph.launch()
        for buffer, array in zip(kernel.outputs, eager, strict=True):
            assert read(place, buffer).tobytes() == array.tobytes()


def a_saved_plan_is_one_graph(place: Place) -> None:
    """Two engines one after the other: saved, loaded, run four times. All runs after the second are one launch."""
    model = mnist()
    graph = DataflowGraph(model)
    names = [graph.names[index] for index in range(len(graph.names)) if not graph.is_host(index)]
    halves = (names[: len(names) // 2], names[len(names) // 2 :])
    partitioned = split(model, {half[0]: place.target for half in halves}, halves)
    sites = {site.name: site for site in call_sites(partitioned)}
    artifacts = {name: place.lowered(site.kernel_function())[0] for name, site in sites.items()}
    targets = dict.fromkeys(sites, place.target)
    path = place.folder / "two.collage"
    save_package(path, partitioned, artifacts, targets, {}, threads=1, model_name="two", model_sha256="")

    package = load_package(path)
    executable = Executable.build(
        package.model,
        package.artifacts,
        package.targets,
        loader(Registry.of(Toolchain(place.target.toolchain, place.plugin))),
        threads=1,
        weights=package.weights,
        host=place.host,
        opening=lambda name: place.stream,
    )
    feeds = random_inputs(graph, seed=3)
    right = evaluate(model, feeds).values
    session = Session(executable)
    for _ in range(4):
        for value, found in zip(executable.outputs, session.run(None, feeds), strict=True):
            assert relative_error(found, right[str(value.name)]) < TOLERANCES[D.FLOAT]

    [launch] = session.launches
    assert (launch.mode, launch.reason, len(launch.steps)) == ("graph", "", 2)


def in_tf32(place: Place) -> Place | None:
    """The same place with the target that may round to TF32; None if there is none."""
    answer = place.plugin.collage_targets(place.host)
    assert not isinstance(answer, Unsupported), answer.reason
    wanted = [each for each in answer if each.option("precision") == "tf32" and each.device == place.target.device]
    return dataclasses.replace(place, target=wanted[0]) if wanted else None


def error_of_a_product(place: Place) -> float:
    """Error of one product of float32, relative to its largest element, against float64."""
    g = GraphBuilder("product")
    model = g.model(g.op("MatMul", g.input("x", 64, 256), g.input("z", 256, 64)))
    function = whole(model)
    feeds = random_inputs(DataflowGraph(model), seed=0)
    [artifact] = place.lowered(function)
    kernel = bound(place, function, artifact, feeds)
    kernel.call()
    right = feeds["x"].astype(np.float64) @ feeds["z"].astype(np.float64)
    return float(np.abs(read(place, kernel.outputs[0]) - right).max() / np.abs(right).max())
