"""Devices by name, each opened once for whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from collage_core.device.protocol import DeviceStream, OpenDevice
from collage_core.errors import DeviceUnavailableError


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
