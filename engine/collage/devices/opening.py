"""Open devices by name, each once for all users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

import numpy as np

from collage_core.contract import Buffer, DeviceStream, OpenDevice, TensorSpec, buffer_over
from collage_core.errors import DeviceLostError, DeviceUnavailableError


def is_lost(error: BaseException | None) -> bool:
    """Return whether an error says that a device is lost, itself or by what caused it."""
    while error is not None and not isinstance(error, DeviceLostError):
        error = error.__cause__
    return error is not None


def buffer_on(device: DeviceStream, spec: TensorSpec) -> Buffer:
    """Allocate a place for a planned value in a device's memory; what it holds is undefined.

    Raises:
        DeviceError: If the device has not the memory.
    """
    memory = device.allocate(spec.nbytes)
    return Buffer.at(spec, device=device.name, pointer=memory.pointer, keeps=memory)


def placed_on(device: DeviceStream, name: str, array: np.ndarray[Any, Any]) -> Buffer:
    """Copy an array to a device; it has been read when this returns, so it may be a temporary one.

    Raises:
        DeviceError: If it has not the memory, or fails.
    """
    source = np.ascontiguousarray(array)
    buffer = buffer_on(device, buffer_over(name, source).spec)
    device.write(buffer.pointer, source)
    device.synchronise()
    return buffer


class Devices:
    """The devices of one executable or of one worker, with one stream each, opened on first use.

    Args:
        opening: Opens a device by name.
    """

    def __init__(self, opening: OpenDevice) -> None:
        self._opening = opening
        self._opened: dict[str, DeviceStream] = {}

    @classmethod
    def none(cls) -> Self:
        """Return none, for what runs on the CPU alone."""

        def refuse(name: str) -> DeviceStream:
            raise DeviceUnavailableError(name, "this runs on the CPU alone")

        return cls(refuse)

    def __getitem__(self, name: str) -> DeviceStream:
        """Return the device with this name, opened on first access.

        Raises:
            DeviceError: If the device cannot be used.
        """
        if name not in self._opened:
            self._opened[name] = self._opening(name)
        return self._opened[name]

    def __iter__(self) -> Iterator[DeviceStream]:
        return iter(self._opened.values())

    def forget(self) -> None:
        """Drop all devices; each is opened anew on its next access."""
        self._opened.clear()

    def named(self, dlpack_device: tuple[int, int]) -> DeviceStream | None:
        """Return the opened device that matches a DLPack device; None if there is none."""
        return next((device for device in self if tuple(device.dlpack_device) == dlpack_device), None)

    def apart(self) -> Devices:
        """Return the same devices, each with a new stream."""
        others = Devices(self._opening)
        others._opened = {name: device.another() for name, device in self._opened.items()}
        return others

    def synchronise(self, names: Iterable[str] | None = None) -> None:
        """Wait for the named devices, or for all opened devices."""
        for name in self._opened if names is None else names:
            self._opened[name].synchronise()
