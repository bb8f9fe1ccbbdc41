"""NVIDIA's devices by CuPy: without one, what is said of it; with one, all of what the runtime asks."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import types
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, TensorSpec
from collage_core.device import Devices, open_device, why_unusable
from collage_core.device.cuda import CudaStream, device_error
from collage_core.errors import (
    DeviceCapabilityError,
    DeviceCaptureError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DriverTooOldError,
)


class CudaError(RuntimeError):
    """As CuPy's CUDARuntimeError."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def library(**answers: Any) -> Any:
    """The part of CuPy that is asked when a device is opened."""

    def count() -> int:
        if answers.get("count_fails"):
            raise answers["count_fails"]
        return int(answers.get("count", 1))

    runtime = types.SimpleNamespace(driverGetVersion=lambda: answers.get("driver", 13000), getDeviceCount=count)
    return types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime))


@pytest.mark.parametrize(
    ("status", "kind", "advice"),
    [
        (2, DeviceMemoryError, "smaller inputs"),
        (35, DriverTooOldError, "cupy-cuda12x"),
        (209, DeviceCapabilityError, "Optimize the model again"),
        (700, DeviceLostError, "start it again"),
        (719, DeviceLostError, "start it again"),
        (220, DeviceLostError, "start it again"),
        (900, DeviceCaptureError, "one by one"),
        (908, DeviceCaptureError, "one by one"),
        (909, DeviceError, "--exclude"),  # cudaErrorTimeout comes after those of captures
        (1, DeviceError, "--exclude"),
    ],
)
def test_a_code_of_cuda_is_an_error_that_says_what_to_do(status: int, kind: type, advice: str) -> None:
    error = device_error("cuda:0", CudaError(status, "cudaErrorSomething: it went wrong"))

    assert type(error) is kind
    assert str(error).startswith("device cuda:0: cudaErrorSomething: it went wrong. ")
    assert advice in str(error)


def test_an_allocator_s_error_is_one_of_memory() -> None:
    assert type(device_error("cuda:0", MemoryError("Out of memory allocating 4,096 bytes"))) is DeviceMemoryError


def test_without_a_driver_there_is_no_device() -> None:
    with pytest.raises(DeviceUnavailableError, match="no NVIDIA driver is installed"):
        CudaStream.with_library(library(driver=0), "cuda:0")


def test_a_driver_older_than_the_library_is_named_as_such() -> None:
    old = CudaError(35, "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version")

    with pytest.raises(DriverTooOldError, match=r"insufficient for CUDA runtime version\. Install"):
        CudaStream.with_library(library(driver=11000, count_fails=old), "cuda:0")


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(DeviceUnavailableError, match="CUDA shows 1 devices to this process"):
        CudaStream.with_library(library(), "cuda:1")


def test_a_device_has_the_number_that_cuda_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, int]] = []
    monkeypatch.setattr(CudaStream, "__init__", lambda self, cupy, name, ordinal: made.append((name, ordinal)))
    cupy = library(count=3)

    for number in range(3):
        CudaStream.with_library(cupy, f"cuda:{number}")

    assert made == [("cuda:0", 0), ("cuda:1", 1), ("cuda:2", 2)]


def test_core_opens_no_other_kind_of_device() -> None:
    with pytest.raises(DeviceUnavailableError, match="core knows devices of CUDA only"):
        open_device("npu:0")


def test_without_cupy_a_device_is_unusable_and_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DeviceUnavailableError, match=r"CuPy cannot be imported: .*collage-core\[cuda\]"):
        open_device("cuda:0")
    assert "collage-core[cuda]" in why_unusable("cuda:0")
    assert why_unusable("npu:0") == ""


def test_a_device_is_opened_once() -> None:
    opened: list[str] = []

    def opening(name: str) -> Any:
        opened.append(name)
        return types.SimpleNamespace(name=name, dlpack_device=(2, 0))

    devices = Devices(opening)

    assert devices["cuda:0"] is devices["cuda:0"]
    assert opened == ["cuda:0"]
    assert devices.named((2, 0)) is devices["cuda:0"]
    assert devices.named((2, 1)) is None


@pytest.fixture
def cuda() -> CudaStream:
    pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    try:
        return CudaStream.open("cuda:0")
    except DeviceError as error:
        pytest.skip(str(error))


def test_cache_and_free_memory_are_asked_of_the_device_itself() -> None:
    asked: list[object] = []

    class Device(contextlib.AbstractContextManager[None]):
        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def __enter__(self) -> None:
            asked.append(self.ordinal)

        def __exit__(self, *exception: object) -> None:
            asked.append("left")

    cupy = library()
    cupy.cuda.Device = Device
    cupy.cuda.Stream = lambda non_blocking: types.SimpleNamespace(ptr=1)
    cupy.cuda.runtime.cudaDevAttrL2CacheSize = 38
    cupy.cuda.runtime.deviceGetAttribute = lambda attribute, ordinal: {(38, 0): 50 << 20}[attribute, ordinal]
    cupy.cuda.runtime.memGetInfo = lambda: (7, 80)
    stream = CudaStream.with_library(cupy, "cuda:0")
    asked.clear()

    assert stream.cache_bytes == 50 << 20
    assert stream.free_bytes == 7
    assert asked == [0, "left"]  # free memory is that of the current device


X = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = TensorSpec(name="x", dtype=ir.DataType.FLOAT, shape=(2, 3))


@pytest.mark.gpu
@pytest.mark.parametrize("pinned", [True, False])
def test_what_is_written_is_read(cuda: CudaStream, pinned: bool) -> None:
    one, other = cuda.allocate(X.nbytes), cuda.allocate(X.nbytes)
    source, target = X.copy(), np.zeros_like(X)
    if pinned:
        source, target = (cuda.allocate_host(X.nbytes).view(np.float32).reshape(2, 3) for _ in range(2))
        source[...] = X

    cuda.write(one.pointer, source)
    cuda.copy(other.pointer, one.pointer, X.nbytes)
    cuda.read(target, other.pointer)
    cuda.synchronise()

    np.testing.assert_array_equal(target, X)
    assert one.pointer % DEVICE_ALIGNMENT_BYTES == other.pointer % DEVICE_ALIGNMENT_BYTES == 0


@pytest.mark.gpu
def test_a_graph_computes_anew_each_time_it_is_launched(cuda: CudaStream) -> None:
    one, other = cuda.allocate(X.nbytes), cuda.allocate(X.nbytes)
    target = cuda.allocate_host(X.nbytes).view(np.float32).reshape(2, 3)
    graph = cuda.capture(lambda: cuda.copy(other.pointer, one.pointer, X.nbytes))

    for factor in (1, 2, 3):
        cuda.write(one.pointer, X * factor)
        graph.launch()
        cuda.read(target, other.pointer)
        cuda.synchronise()
        np.testing.assert_array_equal(target, X * factor)


@pytest.mark.gpu
@pytest.mark.parametrize("forbidden", ["synchronise", "allocate"])
def test_what_cannot_be_captured_is_an_error_and_the_stream_goes_on(cuda: CudaStream, forbidden: str) -> None:
    memory = cuda.allocate(X.nbytes)
    with pytest.raises(DeviceCaptureError):
        cuda.capture(cuda.synchronise if forbidden == "synchronise" else lambda: (cuda.allocate(1 << 20), None)[1])

    target = np.zeros_like(X)
    cuda.write(memory.pointer, X)
    cuda.read(target, memory.pointer)
    cuda.synchronise()
    np.testing.assert_array_equal(target, X)


@pytest.mark.gpu
def test_arrays_of_other_libraries_pass_without_a_copy(cuda: CudaStream) -> None:
    cupy = pytest.importorskip("cupy")
    given = cupy.asarray(X)

    buffer = cuda.taken(SPEC, given)
    shown = cuda.shown(buffer)

    assert buffer.pointer == given.data.ptr == shown.data.ptr
    np.testing.assert_array_equal(shown.get(), X)
    assert tuple(given.__dlpack_device__()) == tuple(cuda.dlpack_device)


@pytest.mark.gpu
def test_too_much_memory_is_refused_by_name(cuda: CudaStream) -> None:
    with pytest.raises(DeviceMemoryError):
        cuda.allocate(1 << 50)


@pytest.mark.gpu
def test_what_is_allocated_is_no_longer_free(cuda: CudaStream) -> None:
    before = cuda.free_bytes
    memory = cuda.allocate(1 << 28)

    assert before - cuda.free_bytes >= memory.nbytes
    assert cuda.cache_bytes > 0


@pytest.mark.gpu
def test_events_tell_time(cuda: CudaStream) -> None:
    memory = cuda.allocate(1 << 26)
    before, after = cuda.event(), cuda.event()
    before.record()
    for _ in range(10):
        cuda.copy(memory.pointer, memory.pointer + (1 << 25), 1 << 25)
    after.record()
    cuda.synchronise()

    assert after.elapsed_us(before) > 10
