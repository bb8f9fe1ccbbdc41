"""Make devices current for libraries that work on the current one."""

from __future__ import annotations

from collage_core.contract import DeviceStream, OpenDevice
from collage_cuda.provider import provider


class Activation:
    """Make a device the calling thread's; each is opened once, and stays open.

    Args:
        opening: Opens one by name.
    """

    def __init__(self, opening: OpenDevice = provider.open) -> None:
        self._opening = opening
        self._opened: dict[str, DeviceStream] = {}

    def __call__(self, device: str) -> None:
        """Make a device current.

        Raises:
            DeviceError: If it cannot be used.
        """
        if device not in self._opened:
            self._opened[device] = self._opening(device)
        self._opened[device].activate()
