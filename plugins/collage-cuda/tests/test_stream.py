"""NVIDIA's devices by CuPy: without one, what is said of it; with one, all of what the runtime asks."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import re
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, TensorSpec
from collage_core.errors import (
    DeviceCapabilityError,
    DeviceCaptureError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DriverTooOldError,
)
from collage_cuda.provider import provider
from collage_cuda.stream import CudaStream, device_error

from .documented_cupy import CACHE_BYTES, MEMORY_BYTES, documented_cupy

X = np.arange(6, dtype=np.float32).reshape(2, 3)
SPEC = TensorSpec(name="x", dtype=ir.DataType.FLOAT, shape=(2, 3))
OWN = {"check", "chosen", "clock_ms", "current", "forbid", "stack", "status", "streams"}
"""What the documented CuPy has for itself."""


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
        (35, DriverTooOldError, "collage-cuda[cuda12]"),
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


def test_after_which_codes_a_process_has_to_be_ended_is_in_cuda_s_header() -> None:
    """As it comes with Triton: the header says so beside each such code."""
    if (triton := importlib.util.find_spec("triton")) is None or triton.origin is None:
        pytest.skip("Triton, which brings CUDA's headers, is not installed")
    header = Path(triton.origin).parent / "backends/nvidia/include/driver_types.h"
    codes = re.findall(r"/\*\*([^/]*)\*/\s*cudaError\w+\s*=\s*(\d+)", header.read_text(encoding="utf-8"))
    fatal = {int(code) for said, code in codes if "terminated and relaunched" in re.sub(r"[\s*]+", " ", said)}

    assert {700, 719} < fatal
    for code in fatal:
        assert type(device_error("cuda:0", CudaError(code, "it went wrong"))) is DeviceLostError, code


def test_an_allocator_s_error_is_one_of_memory() -> None:
    assert type(device_error("cuda:0", MemoryError("Out of memory allocating 4,096 bytes"))) is DeviceMemoryError


def test_without_a_driver_there_is_no_device() -> None:
    with pytest.raises(DeviceUnavailableError, match="no NVIDIA driver is installed"):
        CudaStream.with_library(library(driver=0), "cuda:0")


@pytest.mark.guards(
    "a device is found and cannot be opened: in use elsewhere, no code for it, a driver older than CuPy"
)
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


def test_without_cupy_a_device_is_unusable_and_the_reason_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(DeviceUnavailableError, match=r"CuPy cannot be imported: .*collage-cuda\[cuda13\]"):
        provider.open("cuda:0")
    assert "collage-cuda[cuda13]" in provider.why_unusable("cuda:0")


@pytest.fixture(params=["documented", pytest.param("real", marks=pytest.mark.gpu("cupy"))])
def cupy(request: pytest.FixtureRequest) -> Any:
    return documented_cupy() if request.param == "documented" else importlib.import_module("cupy")


@pytest.fixture
def cuda(cupy: Any) -> CudaStream:
    return CudaStream.with_library(cupy, "cuda:0")


def test_what_the_documented_cupy_has_cupy_has() -> None:
    real = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    documented = documented_cupy()
    runtime = {name for name in dir(documented.cuda.runtime) if not name.startswith("_")}

    assert vars(documented).keys() <= {*dir(real)}
    assert vars(documented.cuda).keys() <= {*dir(real.cuda)}
    assert runtime - OWN <= {*dir(real.cuda.runtime)}
    for name in ("Stream", "Event"):
        ours, theirs = (
            list(inspect.signature(each).parameters)
            for each in (getattr(documented.cuda, name), getattr(real.cuda, name))
        )
        assert [each for each in theirs if each != "runtime"][: len(ours)] == ours
    for name in (
        "hostAllocPortable",
        "memcpyHostToDevice",
        "memcpyDeviceToHost",
        "memcpyDeviceToDevice",
        "streamCaptureModeThreadLocal",
        "cudaDevAttrL2CacheSize",
    ):
        assert getattr(documented.cuda.runtime, name) == getattr(real.cuda.runtime, name)


def test_only_the_device_that_is_used_is_made_current() -> None:
    """CUDA starts on each device that is made current, and some are in exclusive use elsewhere."""
    cupy = documented_cupy(devices=2)
    cuda = CudaStream.with_library(cupy, "cuda:1")

    memory, pinned = cuda.allocate(X.nbytes), cuda.allocate_host(X.nbytes)
    cuda.write(memory.pointer, pinned)
    cuda.capture(lambda: cuda.copy(memory.pointer, memory.pointer, X.nbytes)).launch()
    cuda.event().record()
    cuda.synchronise()

    assert cuda.cache_bytes == CACHE_BYTES
    assert cuda.free_bytes == MEMORY_BYTES - 512 - X.nbytes
    assert set(cupy.cuda.runtime.chosen) == {1}


def test_a_lost_device_is_lost_for_every_call_after_it() -> None:
    cuda = CudaStream.with_library(documented_cupy(), "cuda:0")
    cuda.copy(0x10, 0x20, 4)

    calls = (cuda.synchronise, cuda.activate, cuda.event, lambda: cuda.allocate(4), lambda: cuda.capture(cuda.activate))
    for call in calls:
        with pytest.raises(DeviceLostError, match="cudaError 700"):
            call()


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


def test_a_graph_computes_anew_each_time_it_is_launched(cuda: CudaStream) -> None:
    one, other = cuda.allocate(X.nbytes), cuda.allocate(X.nbytes)
    target = cuda.allocate_host(X.nbytes).view(np.float32).reshape(2, 3)
    graph = cuda.capture(lambda: cuda.copy(other.pointer, one.pointer, X.nbytes))

    for factor in (1, 2, 3):
        given = X * factor
        cuda.write(one.pointer, given)
        graph.launch()
        cuda.read(target, other.pointer)
        cuda.synchronise()
        np.testing.assert_array_equal(target, given)


class Owner:
    """Refers to itself, so only a collection of cycles gives back what it owns."""

    def __init__(self, memory: Any) -> None:
        self.memory, self.itself = memory, self


@pytest.mark.guards(
    "Python's collector of cycles would give memory of a device back while a graph is captured, which ends the capture",
    "it is held off until then (tested on GPUs too)",
    area="devices",
)
def test_nothing_is_collected_while_a_graph_is_captured(cuda: CudaStream) -> None:
    memory = cuda.allocate(X.nbytes)
    gone = weakref.ref(Owner(cuda.allocate(X.nbytes)))

    def enqueue() -> None:
        assert len([[] for _ in range(50_000)]) == 50_000  # so many start a collection otherwise
        assert gone() is not None
        cuda.copy(memory.pointer, memory.pointer, X.nbytes)

    cuda.capture(enqueue).launch()
    cuda.synchronise()

    gc.collect()
    assert gone() is None


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


def test_arrays_of_other_libraries_pass_without_a_copy(cupy: Any, cuda: CudaStream) -> None:
    given = cupy.asarray(X)

    buffer = cuda.taken(SPEC, given)
    shown = cuda.shown(buffer)

    assert buffer.pointer == given.data.ptr == shown.data.ptr
    np.testing.assert_array_equal(shown.get(), X)
    assert tuple(given.__dlpack_device__()) == tuple(cuda.dlpack_device)
    assert getattr(given, "waited_for_by", [cuda.handle]) == [cuda.handle]


def test_too_much_memory_is_refused_by_name(cuda: CudaStream) -> None:
    with pytest.raises(DeviceMemoryError):
        cuda.allocate(1 << 50)


def test_what_is_allocated_is_no_longer_free(cuda: CudaStream) -> None:
    before = cuda.free_bytes
    memory = cuda.allocate(1 << 28)

    assert before - cuda.free_bytes >= memory.nbytes
    assert cuda.cache_bytes > 0


def test_events_tell_time(cuda: CudaStream) -> None:
    memory = cuda.allocate(1 << 26)
    before, after = cuda.event(), cuda.event()
    before.record()
    for _ in range(10):
        cuda.copy(memory.pointer, memory.pointer + (1 << 25), 1 << 25)
    after.record()
    cuda.synchronise()

    assert after.elapsed_us(before) > 10
