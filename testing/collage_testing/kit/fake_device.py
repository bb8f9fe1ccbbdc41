"""A device for tests that shows no mercy: late or early as devices may be, full of garbage, out of memory or lost.

Its clock is its own: every operation says how long it takes, and where a launch is said to take the host time, or
memory to have a cache, they do (`fake_time.py`).
"""

from __future__ import annotations

from collage_core.errors import DeviceUnavailableError
from collage_testing.kit.fake_hardware import FakeHardware
from collage_testing.kit.fake_stream import FakeStream


class FakeDevice(FakeHardware):
    """A fake device; see `FakeHardware` for what it is made with, and `FakeStream` for what it does."""

    def open(self, name: str) -> FakeStream:
        """A stream of it, as `OpenDevice` gives one.

        Raises:
            DeviceUnavailableError: If it has another name.
        """
        if name != self.name:
            raise DeviceUnavailableError(name, f"this is {self.name}")
        return FakeStream(self)
