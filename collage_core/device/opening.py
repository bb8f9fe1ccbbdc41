"""Devices by name, each opened once for whoever asks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from collage_core.contract import Buffer, TensorSpec, buffer_over
from collage_core.device.protocol import DeviceStream, OpenDevice
from collage_core.errors import DeviceLostError, DeviceUnavailableError


def open_device(name: str) -> DeviceStream:
    """Opens a device that core knows.

    Args:
        name: As targets name it, `"cuda:0"`.

    Raises:
        DeviceError: If it cannot be used.
    """
    if name.startswith("cuda:"):
        # what needs CuPy is imported only where a device is wanted
        from collage_core.device.cuda import CudaStream

        return CudaStream.open(name)
    raise DeviceUnavailableError(name, "core knows devices of CUDA only", "Have the toolchain's plugin open it")


def why_unusable(name: str) -> str:
    """Why core could not open a device of CUDA, as far as can be said without starting CUDA; empty if nothing is known.

    Args:
        name: As targets name it.
    """
    if name.startswith("cuda:") and importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed; install `collage-core[cuda]`, or `cupy-cuda12x` for a driver of CUDA 12"
    return ""


def is_lost(error: BaseException | None) -> bool:
    """Whether an error says that a device is lost, itself or by what caused it."""
    while error is not None and not isinstance(error, DeviceLostError):
        error = error.__cause__
    return error is not None


def buffer_on(device: DeviceStream, spec: TensorSpec) -> Buffer:
    """A place of its own for a planned value in a device's memory; what it holds is undefined.

    Raises:
        DeviceError: If the device has not the memory.
    """
    memory = device.allocate(spec.nbytes)
    return Buffer.at(spec, device=device.name, pointer=memory.pointer, keeps=memory)


def placed_on(device: DeviceStream, name: str, array: np.ndarray[Any, Any]) -> Buffer:
    """An array copied to a device; it has been read when this returns, so it may be a temporary one.

    Raises:
        DeviceError: If it has not the memory, or fails.
    """
    source = np.ascontiguousarray(array)
    buffer = buffer_on(device, buffer_over(name, source).spec)
    device.write(buffer.pointer, source)
    device.synchronise()
    return buffer


class Devices:
    """The devices of one executable or of one worker: one stream of each, opened when first asked for.

    Args:
        opening: Opens one by name.
    """

    def __init__(self, opening: OpenDevice = open_device) -> None:
        self._opening = opening
        self._opened: dict[str, DeviceStream] = {}

    def __getitem__(self, name: str) -> DeviceStream:
        """The device of a name.

        Raises:
            DeviceError: If it cannot be used.
        """
        if name not in self._opened:
            self._opened[name] = self._opening(name)
        return self._opened[name]

    def __iter__(self) -> Iterator[DeviceStream]:
        return iter(self._opened.values())

    def forget(self) -> None:
        """Lets go of all: the next one asked for is opened anew."""
        self._opened.clear()

    def named(self, dlpack_device: tuple[int, int]) -> DeviceStream | None:
        """The opened device that arrays of a DLPack device live on."""
        return next((device for device in self if tuple(device.dlpack_device) == dlpack_device), None)

    def apart(self) -> Devices:
        """The same devices, each with a stream of its own."""
        others = Devices(self._opening)
        others._opened = {name: device.another() for name, device in self._opened.items()}
        return others

    def synchronise(self, names: Iterable[str] | None = None) -> None:
        """Waits for those named, or all that were opened."""
        for name in self._opened if names is None else names:
            self._opened[name].synchronise()
