"""Devices, found through a stand-in for NVIDIA's management library that writes through the same pointers."""

# ruff: noqa: N802  NVML names its functions

from __future__ import annotations

import ctypes
import shutil
import subprocess
from typing import Any

import pytest

from collage_core.contract import Device
from collage_cuda import PrimaryContexts
from collage_cuda.management import nvidia_devices
from collage_cuda.numbering import cuda_order, device_uuids


def _set(place: Any, value: int) -> int:
    place._obj.value = value
    return 0


@pytest.fixture(autouse=True)
def everything_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)


def unasked() -> tuple[str, ...]:
    """Of a CUDA that does not start."""
    return ()


def uuid_of(place: int) -> str:
    """Of the device in a place on the bus."""
    return f"GPU-0{place}000000-0000-4000-8000-00000000000f"


class FakeNvml:
    """NVML of a machine with these devices; functions give 0, or the status of an error."""

    def __init__(self, *models: str, starts: bool = True) -> None:
        self.models = models
        self.starts = starts
        self.open = 0

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)  # it has no other function

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
        text.value = uuid_of((handle.value or 0) - 1).encode()
        return 0

    def nvmlDeviceGetCudaComputeCapability(self, handle: ctypes.c_void_p, major: Any, minor: Any) -> int:
        return _set(major, 8) + _set(minor, 9)

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total = 24 << 30
        return 0


def test_devices_are_told_as_targets_name_them() -> None:
    library = FakeNvml("NVIDIA A", "NVIDIA B")

    first, second = nvidia_devices(library, unasked)

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
        ("GPU-01", ["B"]),
        ("", []),
        ("-1", []),
        ("0,7,1", ["A"]),
    ],
)
def test_devices_that_cuda_does_not_show_are_not_there(
    visible: str, models: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    found = nvidia_devices(FakeNvml("A", "B", "C"), unasked)

    assert [device.model for device in found] == models
    assert [device.name for device in found] == [f"cuda:{number}" for number in range(len(models))]


@pytest.mark.guards("NVIDIA's management library is missing, does not start, or loses a device")
def test_a_device_that_does_not_answer_costs_itself_only() -> None:
    assert [device.model for device in nvidia_devices(FakeNvml("A", "lost", "C"), unasked)] == ["A", "C"]


class FakeCuda:
    """CUDA's driver on the same machine, with an order of its own.

    Attributes:
        order: Places on the bus of its devices.
        current: Place of the device that was made current last.
    """

    def __init__(self, *order: int, fails: str = "") -> None:
        self.order = order
        self.fails = fails
        self.current: int | None = None

    def __getattr__(self, name: str) -> Any:
        if name == self.fails:
            return lambda *_: 3
        return {
            "cuInit": lambda flags: 0,
            "cuDeviceGetCount": lambda count: _set(count, len(self.order)),
            "cuDeviceGet": lambda device, number: _set(device, self.order[number.value] + 100),
            "cuDeviceGetUuid": self._uuid,
            "cuDevicePrimaryCtxRetain": lambda context, device: _set(context, device.value),
            "cuCtxPushCurrent_v2": self._push,
            "cuCtxPopCurrent_v2": lambda context: 0,
        }[name]

    def _uuid(self, raw: Any, device: ctypes.c_int) -> int:
        raw.raw = bytes.fromhex(uuid_of(device.value - 100).removeprefix("GPU-").replace("-", ""))
        return 0

    def _push(self, context: ctypes.c_void_p) -> int:
        self.current = (context.value or 0) - 100
        return 0


@pytest.mark.parametrize("order", [(2, 0, 1), (2, 1), (1,)])
def test_all_mean_the_same_device_by_a_number_where_cuda_does_not_go_by_the_bus(order: tuple[int, ...]) -> None:
    """The management library, and CUDA's driver, whose numbers those of libraries are."""
    cuda = FakeCuda(*order)
    contexts = PrimaryContexts(cuda)

    found = nvidia_devices(FakeNvml("small", "middle", "large"), lambda: device_uuids(cuda))

    assert [device.model for device in found] == [("small", "middle", "large")[place] for place in order]
    for device, place in zip(found, order, strict=True):
        with contexts.current(device.name):
            assert cuda.current == place


def test_cuda_goes_by_the_bus_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked() -> tuple[str, ...]:
        raise AssertionError

    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")

    assert [device.model for device in nvidia_devices(FakeNvml("small", "large"), asked)] == ["large", "small"]
    monkeypatch.delenv("CUDA_DEVICE_ORDER")
    assert len(nvidia_devices(FakeNvml("alike", "alike"), asked)) == 2


@pytest.mark.parametrize("shown", [(), ("MIG-1f00",)])
def test_where_cuda_names_no_devices_they_are_numbered_by_bus(shown: tuple[str, ...]) -> None:
    found = nvidia_devices(FakeNvml("small", "large"), lambda: shown)

    assert [(device.name, device.model) for device in found] == [("cuda:0", "small"), ("cuda:1", "large")]


@pytest.mark.parametrize("fails", ["cuInit", "cuDeviceGetUuid"])
def test_a_driver_that_refuses_says_at_what(fails: str) -> None:
    with pytest.raises(OSError, match=f"{fails}: 3"):
        device_uuids(FakeCuda(0, fails=fails))


def test_a_process_of_its_own_asks_and_says_nothing_without_a_driver() -> None:
    if shutil.which("nvidia-smi") is None:
        assert cuda_order() == ()


@pytest.mark.guards(
    "NVIDIA's management library is missing, does not start, or loses a device",
    "there are no devices, or the others",
    area="toolchains",
)
def test_a_driver_that_does_not_start_has_no_devices() -> None:
    assert nvidia_devices(FakeNvml("A", starts=False)) == ()


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="nvidia-smi is not installed")
def test_cuda_shows_each_device_once() -> None:
    told = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout

    shown = cuda_order()

    assert shown
    assert len(set(shown)) == len(shown)
    assert all(f"(UUID: {uuid})" in told for uuid in shown)


@pytest.mark.gpu
@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="nvidia-smi is not installed")
def test_the_real_library_tells_what_nvidia_smi_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    told = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    found = nvidia_devices()

    assert [f"{device.model}, {device.compute_capability}, {device.driver}" for device in found] == told
