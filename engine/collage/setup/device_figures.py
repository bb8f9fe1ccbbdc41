"""What devices take for what kernels do not, measured once per machine and device by the workers that time kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol

from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.outcomes import DeviceTimes, Failed
from collage.store import TuningStore
from collage_core.contract import CopyFigures, Host, Target, Unsupported
from collage_core.contract.device import HOST

ASSUMED = CopyFigures(latency_us=10.0, bytes_per_us=12_000.0)
"""Where measuring failed: about what sixteen lanes of PCI Express 3.0 leave of their 15.75 GB/s, and a call that waits.
It only decides which plans are tried: those are timed end to end, copies included."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """What was measured of a device of a machine."""

    KIND: ClassVar[str] = "device"
    VERSION: ClassVar[int] = 1

    times: DeviceTimes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """What a device takes.

    Attributes:
        device: Its name.
        to_device: Copies from the host.
        from_device: Copies to the host, without what waiting for them takes.
        within: Copies within the device.
        wait_us: What it takes the host to wait for a stream that is done.
        start_us: What launching a graph adds to the copy before it, until its first kernel begins.
        cache_bytes: Size of its last-level cache; 0 if it is not known.
        assumed: Why nothing of this was measured; empty if it was.
    """

    device: str
    to_device: CopyFigures
    from_device: CopyFigures
    within: CopyFigures
    wait_us: float
    start_us: float
    cache_bytes: int
    assumed: str = ""

    @classmethod
    def of(cls, device: str, times: DeviceTimes) -> DeviceFigures:
        """What follows from measured times."""
        start_us = 0.0
        if times.graphs:  # a graph's time is a line over its length, as a copy's over its size
            [smallest, *_] = sorted(times.to_device)
            start_us = max(0.0, CopyFigures.fitted(times.graphs).latency_us - smallest[1])
        return cls(
            device=device,
            to_device=CopyFigures.fitted(times.to_device),
            from_device=CopyFigures.fitted(times.from_device),
            within=CopyFigures.fitted(times.within),
            wait_us=times.wait_us,
            start_us=start_us,
            cache_bytes=times.cache_bytes,
        )

    @classmethod
    def unmeasured(cls, device: str, reason: str) -> DeviceFigures:
        """What is assumed where measuring failed."""
        return cls(
            device=device,
            to_device=ASSUMED,
            from_device=ASSUMED,
            within=ASSUMED,
            wait_us=0.0,
            start_us=0.0,
            cache_bytes=0,
            assumed=reason,
        )

    @property
    def said(self) -> str:
        """What a user should know; empty if all is measured."""
        if not self.assumed:
            return ""
        return (
            f"copies to and from {self.device} are not measured ({self.assumed}): {ASSUMED.latency_us:g} us and "
            f"{ASSUMED.bytes_per_us / 1000:g} GB/s are assumed"
        )


class DeviceMeter(Protocol):
    """Measures devices. Asked once per machine and device: what it answers is kept in the tuning database."""

    def times(self, device: str) -> DeviceTimes | Unsupported:
        """What a device takes, measured where kernels are.

        Args:
            device: Its name, as in `Target.device`.

        Returns:
            Times, or why there are none.
        """


class WorkerMeter:
    """Has a device measured in the worker of a toolchain with a target there: the first that can.

    Args:
        pool: The workers.
        targets: The targets that take part.
    """

    def __init__(self, pool: WorkerPool, targets: Iterable[Target]) -> None:
        self._pool = pool
        self._toolchains: dict[str, list[str]] = {}
        for target in targets:
            known = self._toolchains.setdefault(target.device, [])
            if target.toolchain not in known:
                known.append(target.toolchain)

    def times(self, device: str) -> DeviceTimes | Unsupported:
        """See `DeviceMeter`."""
        reasons: dict[str, None] = {}
        for toolchain in self._toolchains.get(device, ()):
            answer = self._pool.worker(toolchain).device_times(device)
            if not isinstance(answer, Failed):
                return answer
            reasons[answer.reason] = None
        return Unsupported("; ".join(reasons) or "no toolchain has a target there")


def device_figures(
    database: TuningStore, host: Host, devices: Iterable[str], meter: DeviceMeter
) -> tuple[DeviceFigures, ...]:
    """What devices beside the CPU take.

    Args:
        database: Knows what was measured, and keeps what is; what failed is tried again the next time.
        host: This machine.
        devices: Those of the targets that take part; the CPU among them is left out.
        meter: Measures what is not known.
    """
    found = []
    for device in sorted(set(devices) - {HOST}):
        name = host.fingerprint_for(device)
        known = database.get_document(MeasuredDevice, name)
        times = meter.times(device) if known is None else known.times
        if known is None and isinstance(times, DeviceTimes):
            database.put_document(name, MeasuredDevice(times=times))
        if isinstance(times, Unsupported):
            found.append(DeviceFigures.unmeasured(device, times.reason))
        else:
            found.append(DeviceFigures.of(device, times))
    return tuple(found)


def warm_devices(figures: Sequence[DeviceFigures], weights_bytes: int) -> frozenset[str]:
    """Devices whose caches hold all of a model's weights, so that a run finds those the last one read.

    Args:
        figures: Of the devices.
        weights_bytes: Of the whole model.
    """
    return frozenset(each.device for each in figures if weights_bytes <= each.cache_bytes)
