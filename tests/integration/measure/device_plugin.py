"""A toolchain on a fake device, and such devices, for worker processes."""

from __future__ import annotations

import atexit
import dataclasses
import sys

from collage.measure.clocks import rotation
from collage_core.contract import PRECISIONS, Obstacle, Target, Unsupported
from collage_core.hookspecs import hookimpl
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_testing.kit import ExecutingMock, FakeDevice, FakeDevices

rotation.LOADING_S = 3600.0  # of the worker that imports this: how many copies it makes is not a matter of time

TARGETS = [Target(toolchain="far", device="fake:0", fingerprint="far 1")]


class Hindered:
    """A toolchain whose library wants a newer driver."""

    @hookimpl
    def collage_targets(self) -> Unsupported:
        return Unsupported("driver 470 is too old; install 525", Obstacle.DRIVER_TOO_OLD)


plugin = ExecutingMock("far", costs_us={}, targets=TARGETS)
devices = FakeDevices(FakeDevice("fake:0"))
small = FakeDevices(FakeDevice("fake:0", memory_bytes=300))
FRAGILE = FakeDevice("fake:0", lost_after=4)
fragile = FakeDevices(FRAGILE)
caching = FakeDevices(FakeDevice("fake:0", cache_bytes=1 << 13))
large = FakeDevices(FakeDevice("fake:0", cache_bytes=1 << 14))
near = ExecutingMock("near", costs_us={})
hindered = Hindered()


@atexit.register
def complain() -> None:
    """Once the device is lost, as CuPy does for each piece of its memory when the interpreter ends."""
    if FRAGILE._asked > 4:
        print("Exception ignored in: 'cupy.cuda.memory.Memory.__dealloc__'\n" * 20, file=sys.stderr)


ROUNDED = dataclasses.replace(TARGETS[0], exact=False, rounds=frozenset(PRODUCTS))
PRECISE = [*TARGETS, *(dataclasses.replace(ROUNDED, options=(("precision", each),)) for each in PRECISIONS)]
precise = ExecutingMock("far", costs_us={}, targets=PRECISE)
