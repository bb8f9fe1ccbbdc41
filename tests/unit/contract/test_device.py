"""Devices, found through a stand-in for NVIDIA's management library that writes through the same pointers."""

# ruff: noqa: N802  NVML names its functions

from __future__ import annotations

import ctypes
import dataclasses
import shutil
import subprocess
from typing import Any

import pytest

from collage_core.contract import Device, Host
from collage_core.contract.device import nvidia_devices

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1)


def _set(place: Any, value: int) -> int:
    place._obj.value = value
    return 0


@pytest.fixture(autouse=True)
def everything_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


class FakeNvml:
    """NVML of a machine with these devices; functions give 0, or the status of an error."""

    def __init__(self, *models: str, starts: bool = True) -> None:
        self.models = models
        self.starts = starts
        self.open = 0

    def nvmlInit_v2(self) -> int:
        self.open += self.starts
        return 0 if self.starts else 9

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        return _set(count, len(self.models))

    def nvmlSystemGetDriverVersion(self, text: Any, size: ctypes.c_uint) -> int:
        text.value = b"580.65.06"
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        return 15 if self.models[index.value] == "lost" else _set(handle, index.value + 1)

    def nvmlDeviceGetName(self, handle: ctypes.c_void_p, text: Any, size: ctypes.c_uint) -> int:
        text.value = self.models[(handle.value or 0) - 1].encode()
        return 0

    def nvmlDeviceGetUUID(self, handle: ctypes.c_void_p, text: Any, size: ctypes.c_uint) -> int:
        text.value = f"GPU-{(handle.value or 0) - 1}f00".encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        return _set(major, 8) + _set(minor, 9)

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total = 24 << 30
        return 0


def test_devices_are_told_as_targets_name_them() -> None:
    library = FakeNvml("NVIDIA A", "NVIDIA B")

    first, second = nvidia_devices(library, None)

    assert first == Device(
        name="cuda:0", model="NVIDIA A", compute_capability="8.9", driver="580.65.06", memory_bytes=24 << 30
    )
    assert (second.name, second.model) == ("cuda:1", "NVIDIA B")
    assert library.open == 0


@pytest.mark.parametrize(
    ("visible", "models"),
    [
        ("1", ["B"]),
        ("2,0", ["C", "A"]),
        ("GPU-1", ["B"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["A"]),
    ],
)
def test_devices_that_cuda_does_not_show_are_not_there(
    visible: str, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    found = nvidia_devices(FakeNvml("A", "B", "C"))

    assert [device.model for device in found] == models
    assert [device.name for device in found] == [f"cuda:{number}" for number in range(len(models))]


def test_a_device_that_does_not_answer_costs_itself_only() -> None:
    assert [device.model for device in nvidia_devices(FakeNvml("A", "lost", "C"), None)] == ["A", "C"]


def test_a_driver_that_does_not_start_has_no_devices() -> None:
    assert nvidia_devices(FakeNvml("A", starts=False)) == ()


def test_measurements_on_a_device_are_kept_apart_by_device_and_driver() -> None:
    host = dataclasses.replace(HOST, devices=(H100,))
    updated = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, driver="590.1"),))
    exchanged = dataclasses.replace(HOST, devices=(dataclasses.replace(H100, model="NVIDIA H200"),))

    assert len({each.fingerprint_for("cuda:0") for each in (host, updated, exchanged, HOST)}) == 4
    assert {each.fingerprint_for("cpu") for each in (host, updated, exchanged)} == {HOST.fingerprint}
    assert host.device("cuda:1") is None


def test_what_was_measured_on_several_devices_holds_for_all_of_them() -> None:
    other = dataclasses.replace(H100, name="cuda:1", model="NVIDIA H200")
    host = dataclasses.replace(HOST, devices=(H100, other))

    assert host.fingerprint_for() == host.fingerprint_for("cpu", "cpu") == HOST.fingerprint
    assert host.fingerprint_for("cpu", "cuda:0") == host.fingerprint_for("cuda:0")
    assert host.fingerprint_for("cuda:1", "cpu", "cuda:0") == host.fingerprint_for("cuda:0", "cuda:1")
    assert len({host.fingerprint_for(*each) for each in ((), ("cuda:0",), ("cuda:1",), ("cuda:0", "cuda:1"))}) == 4


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="nvidia-smi is not installed")
def test_the_real_library_tells_what_nvidia_smi_tells() -> None:
    told = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    found = nvidia_devices()

    assert [f"{device.model}, {device.compute_capability}, {device.driver}" for device in found] == told
