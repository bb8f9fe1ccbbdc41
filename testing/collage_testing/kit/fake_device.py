"""A fake device that is as hostile as the contract allows: late or early, full of garbage, out of memory or lost.

It has its own clock: every operation states its duration; launch times of the host and a memory cache are
simulated where they are configured (`fake_time.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from collage.devices.providers import Providers
from collage_core.contract import Device, LibraryFamily
from collage_core.errors import DeviceUnavailableError
from collage_testing.kit.fake_hardware import FakeHardware
from collage_testing.kit.fake_stream import FakeStream


class FakeDevice(FakeHardware):
    """A fake device; see `FakeHardware` for its parameters and `FakeStream` for its behaviour."""

    def open(self, name: str) -> FakeStream:
        """Open a stream of it, as `OpenDevice` gives one.

        Raises:
            DeviceUnavailableError: If it has another name.
        """
        if name != self.name:
            raise DeviceUnavailableError(name, f"this is {self.name}")
        return FakeStream(self)


class FakeDevices:
    """A provider of fake devices of one kind; see `DeviceProvider`. No machine shows them: they can only be opened.

    Args:
        devices: The devices, each of another name.
    """

    library_families: Sequence[LibraryFamily] = ()

    def __init__(self, *devices: FakeDevice) -> None:
        self._by_name = {device.name: device for device in devices}

    def devices(self) -> tuple[Device, ...]:
        """Return none, so that a machine is the same one with them and without."""
        return ()

    def open(self, name: str) -> FakeStream:
        """Open a stream of one of them.

        Raises:
            DeviceUnavailableError: If none has the name.
        """
        if name not in self._by_name:
            raise DeviceUnavailableError(name, f"there is {', '.join(self._by_name)}")
        return self._by_name[name].open(name)

    def why_unusable(self, name: str) -> str:
        """Return nothing: what is wrong with one shows when it is used."""
        return ""


def fake_providers(*devices: FakeDevice) -> Providers:
    """Provide fake devices and no others."""
    kinds: dict[str, list[FakeDevice]] = {}
    for device in devices:
        kinds.setdefault(device.name.partition(":")[0], []).append(device)
    return Providers.of({kind: FakeDevices(*each) for kind, each in kinds.items()})
