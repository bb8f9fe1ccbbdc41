"""Engines on a fake device: what the library is told, and the bodies of the GPU tests."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.devices.opening import buffer_on
from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    Buffer,
    BuildContext,
    KernelFunction,
    RunContext,
    SizedKernel,
    TensorSpec,
    Unsupported,
)
from collage_core.errors import DeviceCaptureError, DeviceLostError, DeviceMemoryError, KernelError
from collage_core.registry import Toolchain
from collage_tensorrt.lower import ENGINE
from collage_testing.kit import DeviceMachine, FakeDevice

from . import bodies
from .emulated import Library
from .emulated_engine import WORKSPACE_BYTES, Engine
from .machine import EDITIONS, HOST, build_context, emulated, fake, lowered, plugin_over, regions, target
from .test_engines import loosely_declared

REPLAYS = 3


@pytest.fixture(params=EDITIONS)
def machine(request: pytest.FixtureRequest) -> DeviceMachine:
    edition, device = EDITIONS[request.param], FakeDevice("cuda:0")
    plugin = plugin_over(emulated(edition, device), edition)
    return DeviceMachine.fake(Toolchain(edition.toolchain, plugin), HOST, device)


# The bodies of the tests on a GPU


@pytest.mark.parametrize("name", bodies.MODELS)
def test_numbers_are_right(name: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.numbers_are_right(machine, tmp_path, bodies.MODELS[name])


@pytest.mark.parametrize("name", bodies.MODELS)
def test_a_graph_gives_the_same_bits(name: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.a_graph_gives_the_same_bits(machine, tmp_path, bodies.MODELS[name], REPLAYS)


def test_a_saved_plan_is_one_graph(machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.a_saved_plan_is_one_graph(machine, tmp_path)


def test_a_call_that_was_never_made_cannot_be_captured(machine: DeviceMachine, tmp_path: Path) -> None:
    """Kernels are loaded when they first run: that the runtime warms up is not for nothing."""
    function = regions()["product"]
    [artifact] = machine.variants(function, machine.target(), tmp_path, effort=1)
    zeros = {spec.name: np.zeros(spec.static_shape, spec.numpy_dtype) for spec in function.inputs}
    kernel = machine.bound(function, machine.target(), artifact, zeros)

    with pytest.raises(DeviceCaptureError, match="allocates"):
        kernel.replay()


# What the library is told


@dataclasses.dataclass(frozen=True)
class Told:
    """A region bound on a fake device, and what its context was told."""

    library: Library
    function: KernelFunction
    artifact: Artifact
    kernel: SizedKernel
    stream: Any

    @property
    def calls(self) -> list[tuple[Any, ...]]:
        return self.library.contexts[-1].calls

    def buffer(self, spec: TensorSpec) -> Buffer:
        return buffer_on(self.stream, spec)

    def workspace(self, size: int = WORKSPACE_BYTES) -> Buffer:
        return self.buffer(TensorSpec(name="workspace", dtype=bodies.D.UINT8, shape=(size,)))


def told(function: KernelFunction, folder: Path) -> Told:
    device, stream = fake()
    library = Library(device=device)
    plugin = plugin_over(library)
    [artifact] = lowered(plugin, function, build_context(folder))
    kernel = plugin.collage_load(
        target(), artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=stream.handle)
    )
    assert isinstance(kernel, SizedKernel)
    return Told(library, function, artifact, kernel, stream)


def test_a_call_is_one_enqueue_on_the_stream_given_with_every_address(tmp_path: Path) -> None:
    it = told(regions()["product"], tmp_path)
    [x], [y] = ([it.buffer(spec) for spec in specs] for specs in (it.function.inputs, it.function.outputs))
    scratch = it.workspace()

    call = it.kernel.bind([x], [y], scratch)
    call()
    call()

    assert it.calls == [
        ("memory", scratch.pointer, WORKSPACE_BYTES),
        (x.spec.name, x.pointer),
        (y.spec.name, y.pointer),
        ("execute", it.stream.handle),
        ("execute", it.stream.handle),
    ]
    assert "synchronise" not in it.library.device.kinds()  # type: ignore[union-attr]


def test_each_binding_has_a_context_of_its_own(tmp_path: Path) -> None:
    it = told(regions()["pooling"], tmp_path)
    places = [
        ([it.buffer(spec) for spec in it.function.inputs], [it.buffer(spec) for spec in it.function.outputs])
        for _ in range(2)
    ]

    for inputs, outputs in places:
        it.kernel.bind(inputs, outputs, it.workspace())

    addresses = [context.calls[1:] for context in it.library.contexts]
    assert len(addresses) == 2
    assert addresses[0] != addresses[1]


def test_a_size_left_open_is_fixed_when_it_is_bound(tmp_path: Path) -> None:
    it = told(loosely_declared(), tmp_path)

    it.kernel.bind(
        [it.buffer(spec) for spec in it.function.inputs],
        [it.buffer(spec) for spec in it.function.outputs],
        it.workspace(),
    )

    assert ("shape", "x", (4, 16)) in it.calls
    assert [each[1] for each in it.calls if each[0] == "shape"] == ["x"]


def test_scratch_memory_is_known_once_the_engine_is_read_on_its_device(tmp_path: Path) -> None:
    it = told(regions()["product"], tmp_path)
    inputs, outputs = ([it.buffer(spec) for spec in specs] for specs in (it.function.inputs, it.function.outputs))

    assert it.artifact.workspace_bytes == 0
    assert it.kernel.workspace_bytes == WORKSPACE_BYTES
    for too_little in (None, it.workspace(WORKSPACE_BYTES - 256)):
        with pytest.raises(KernelError, match=f"needs {WORKSPACE_BYTES} bytes of workspace"):
            it.kernel.bind(inputs, outputs, too_little)


def test_a_place_that_is_not_aligned_is_refused_with_its_address(tmp_path: Path) -> None:
    it = told(regions()["product"], tmp_path)
    [spec] = it.function.inputs
    odd = Buffer.at(spec, device="cuda:0", pointer=it.buffer(spec).pointer + 4)

    with pytest.raises(KernelError, match=f"is at {odd.pointer:#x}; engines take places at multiples of 256"):
        it.kernel.bind([odd], [it.buffer(each) for each in it.function.outputs], it.workspace())


def test_an_enqueue_that_fails_is_an_error(tmp_path: Path) -> None:
    it = told(regions()["product"], tmp_path)
    inputs, outputs = ([it.buffer(spec) for spec in specs] for specs in (it.function.inputs, it.function.outputs))
    call = it.kernel.bind(inputs, outputs, it.workspace())
    it.library.contexts[-1]._addresses.clear()

    with pytest.raises(KernelError, match="the engine does not run: the library does not say why"):
        call()
    for said in ("first reason", "second reason"):
        it.library.trouble = said
        with pytest.raises(KernelError, match=f"the engine does not run: {said}"):
            call()


NO_MEMORY = "Error Code 1: Cuda Runtime (In allocate (cudaError 2: out of memory))"
NO_MEMORY_EITHER = "Error Code 2: OutOfMemory (Requested size was 1048576 bytes.): out of memory"
LOST = "Error Code 1: Cuda Runtime (In run (cudaError 700: an illegal memory access was encountered))"


@pytest.mark.parametrize(
    ("said", "kind"), [(NO_MEMORY, DeviceMemoryError), (NO_MEMORY_EITHER, DeviceMemoryError), (LOST, DeviceLostError)]
)
def test_a_devices_trouble_is_told_by_its_kind_at_every_step(said: str, kind: type[Exception], tmp_path: Path) -> None:
    """Core tries again what had too little memory, and ends a worker whose device is lost."""
    it = told(regions()["product"], tmp_path)
    inputs, outputs = ([it.buffer(spec) for spec in specs] for specs in (it.function.inputs, it.function.outputs))
    call = it.kernel.bind(inputs, outputs, it.workspace())
    plugin = plugin_over(it.library)
    it.library.trouble = it.library.refuses = said

    with pytest.raises(kind, match="cuda:0"):
        lowered(plugin, it.function, build_context(tmp_path))
    with pytest.raises(kind, match="cuda:0"):
        plugin.collage_load(
            target(), it.artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=it.stream.handle)
        )
    with pytest.raises(kind, match="cuda:0"):
        it.kernel.bind(inputs, outputs, it.workspace())
    with pytest.raises(kind, match="cuda:0"):
        call()


# What keeps an engine from being read


def loaded(library: Library, artifact: Artifact, stream: int | None = 7) -> str:
    answer = plugin_over(library).collage_load(
        target(), artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=stream)
    )
    assert isinstance(answer, Unsupported)
    return answer.reason


@pytest.mark.guards("an engine's bytes are damaged, or of another version")
def test_another_version_than_built_it_refuses_before_it_reads(build: BuildContext) -> None:
    device, _ = fake()
    [artifact] = lowered(plugin_over(Library(device=device)), regions()["pooling"], build)

    newer = Library(device=device, version="1.8.0.2")

    assert loaded(newer, artifact) == "its engine is one of version 1.7.1.116, this is 1.8.0.2"


@pytest.mark.guards(
    "an engine's bytes are damaged, or of another version",
    "it is refused with the library's own diagnosis, or both versions; core lowers again",
    area="toolchains",
)
def test_what_is_no_engine_is_named_by_the_librarys_own_diagnosis(build: BuildContext) -> None:
    device, _ = fake()
    library = Library(device=device)
    [artifact] = lowered(plugin_over(library), regions()["pooling"], build)
    broken = dataclasses.replace(artifact, files={ENGINE: artifact.files[ENGINE][:40]})

    assert loaded(library, broken) == "malformed engine: the plan cannot be read"


def test_without_a_stream_it_is_refused(build: BuildContext) -> None:
    [artifact] = lowered(plugin_over(Library()), regions()["pooling"], build)

    assert loaded(Library(), artifact, None) == "it enqueues on a stream, and none was given"


def test_an_engine_that_wants_the_hosts_memory_is_refused(build: BuildContext, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(device=fake()[0])
    function = regions()["pooling"]
    [artifact] = lowered(plugin_over(library), function, build)
    monkeypatch.setattr(Engine, "on_host", frozenset({function.inputs[0].name}))

    assert loaded(library, artifact) == f"its engine wants '{function.inputs[0].name}' in the host's memory"


@pytest.mark.guards(
    "an engine is built where there is no device to read it",
    "it is built; reading it is refused with the library's reason",
    area="toolchains",
)
@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_an_engine_cannot_be_read_without_a_device_and_the_library_says_why(library: Any, build: BuildContext) -> None:
    [artifact] = lowered(plugin_over(library), regions()["pooling"], build)

    answer = plugin_over(library).collage_load(
        target(), artifact, RunContext(threads=1, host=HOST, device="cuda:0", stream=7)
    )

    assert isinstance(answer, Unsupported)
    assert "CUDA driver version is insufficient" in answer.reason


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_a_broken_engine_is_told_from_a_missing_device(rtx: Any, build: BuildContext) -> None:
    [artifact] = lowered(plugin_over(rtx), regions()["pooling"], build)
    broken = dataclasses.replace(artifact, files={ENGINE: b"no engine at all" * 8})

    answer = plugin_over(rtx).collage_load(
        target(), broken, RunContext(threads=1, host=HOST, device="cuda:0", stream=7)
    )

    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith("malformed engine: ")


def test_tf32_is_a_target_of_its_own_and_float32_is_not_rounded(machine: DeviceMachine, tmp_path: Path) -> None:
    """The emulation rounds nothing: that the flag is off is seen in `test_engines`."""
    plain, tf32 = machine.target(), machine.target(precision="tf32")

    assert bodies.error_of_a_product(machine, plain, tmp_path) < 1e-6
    assert bodies.error_of_a_product(machine, tf32, tmp_path) < 1e-2


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_products_are_rounded_to_16_bits_where_that_is_asked_for(
    precision: str, machine: DeviceMachine, tmp_path: Path
) -> None:
    bodies.a_product_is_rounded_to_its_precision(machine, precision, tmp_path)


@pytest.mark.parametrize("precision", ["int8", "int8+fp16"])
def test_products_are_those_of_integers(precision: str, machine: DeviceMachine, tmp_path: Path) -> None:
    bodies.products_are_those_of_integers(machine, precision, tmp_path)
