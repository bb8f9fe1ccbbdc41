"""Calls that wait are known by their names, and names are read where CUPTI puts them."""

from __future__ import annotations

import ctypes
import struct

import pytest

from collage_core.errors import DeviceUnavailableError
from collage_testing.kit import FakeDevice
from collage_testing.kit.device_calls import CallbackData, cupti, last_work, launches, logged, traced, waits


@pytest.mark.parametrize(
    ("call", "is_one"),
    [
        ("cuStreamSynchronize", True),
        ("cuCtxSynchronize", True),
        ("cuEventSynchronize", True),
        ("cuMemcpyDtoH_v2", True),
        ("cuMemcpy", True),
        ("cuMemsetD8_v2", True),
        ("cuMemAlloc_v2", True),
        ("cuMemFree_v2", True),
        ("cuModuleLoadData", True),
        ("cuMemcpyDtoHAsync_v2", False),
        ("cuMemcpyHtoDAsync_v2_ptsz", False),
        ("cuMemAllocFromPoolAsync", False),
        ("cuGraphLaunch", False),
        ("cuLaunchKernelEx", False),
        ("cuCtxSetCurrent", False),
        ("cuEventRecord", False),
    ],
)
def test_calls_of_the_driver_that_wait_are_known(call: str, is_one: bool) -> None:
    assert waits([call]) == ([0] if is_one else [])


def test_the_tracer_reads_names_where_cupti_puts_them() -> None:
    """A record laid out by hand as `CUpti_CallbackData` is for 64-bit systems."""
    name = ctypes.create_string_buffer(b"cuGraphLaunch")
    raw = struct.pack("<i4xQQQQQI4xQI4x", 0, ctypes.addressof(name), 0, 0, 0, 0, 7, 0, 9)

    data = CallbackData.from_buffer_copy(raw)

    assert (data.site, data.function, data.context_uid, data.correlation_id) == (0, b"cuGraphLaunch", 7, 9)


def test_a_fake_device_s_log_is_read_alike() -> None:
    device = FakeDevice("made-up:0")
    stream = device.open("made-up:0")
    stream.synchronise()

    with logged(device) as calls:
        graph = stream.capture(lambda: stream.enqueue("relu", lambda: None))
        stream.enqueue("relu", lambda: None)
        graph.launch()
        stream.synchronise()

    assert calls == ["capture", "kernel", "kernel", "launch", "synchronise"]
    assert launches(calls) == ["kernel", "kernel", "graph"]
    assert (last_work(calls), waits(calls)) == (3, [4])


def test_without_cupti_a_real_device_cannot_be_traced_and_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)

    with pytest.raises(DeviceUnavailableError, match=r"libcupti.*cannot open.*Install nvidia-cuda-cupti"):
        cupti()
    with pytest.raises(DeviceUnavailableError), traced():
        pass
