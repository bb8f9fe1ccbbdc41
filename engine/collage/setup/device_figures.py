"""Measure copy, launch and synchronisation costs per device, once per machine, in the workers that time kernels."""

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
"""Figures assumed where measuring failed.

About what sixteen lanes of PCI Express 3.0 leave of their 15.75 GB/s, and a call that waits. They only decide which
plans are tried; those are timed end to end, copies included.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredDevice:
    """What was measured of a device of a machine."""

    KIND: ClassVar[str] = "device"
    VERSION: ClassVar[int] = 2

    times: DeviceTimes


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFigures:
    """Copy, launch and synchronisation costs of a device.

    Attributes:
        device: Its name.
        to_device: Copies from the host.
        from_device: Copies to the host, without the wait for them.
        within: Copies within the device.
        wait_us: Time for the host to wait for an idle stream.
        start_us: Time a graph launch adds to the copy before it, until the graph's first kernel begins.
        cache_bytes: Size of its last-level cache; 0 if unknown.
        assumed: Why the figures are assumed; empty if they are measured.
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
        """Derive device figures from measured times."""
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
        """Return the default figures, for a device that could not be measured."""
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
        """Note for the user about assumed figures; empty if all are measured."""
        if not self.assumed:
            return ""
        return (
            f"copies to and from {self.device} are not measured ({self.assumed}): {ASSUMED.latency_us:g} us and "
            f"{ASSUMED.bytes_per_us / 1000:g} GB/s are assumed"
        )


class DeviceMeter(Protocol):
    """Measures devices. Called once per machine and device: the result is kept in the tuning database."""

    def times(self, device: str) -> DeviceTimes | Unsupported:
        """Measure the times of a device in the worker that also times its kernels.

        Args:
            device: Its name, as in `Target.device`.

        Returns:
            The times, or why there are none.
        """


class WorkerMeter:
    """Measures a device in the worker of the first toolchain with a target there that can do so.

    Args:
        pool: The workers.
        targets: The participating targets.
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
    """Return copy, launch and synchronisation figures of the devices other than the CPU.

    Args:
        database: Source of cached times, and store of new ones; failed measurements are repeated the next time.
        host: This machine.
        devices: Devices of the participating targets; the CPU is ignored.
        meter: Measures times that are not in the database.
    """
    found = []
    for device in sorted(set(devices) - {HOST}):
        name = host.fingerprint_for(device)
        known = database.get_document(MeasuredDevice, name)
        times = meter.times(device) if known is None else known.times
        if known is None and isinstance(times, DeviceTimes):
            times = database.keep_first(name, MeasuredDevice(times=times)).times
        if isinstance(times, Unsupported):
            found.append(DeviceFigures.unmeasured(device, times.reason))
        else:
            found.append(DeviceFigures.of(device, times))
    return tuple(found)


def warm_devices(figures: Sequence[DeviceFigures], weights_bytes: int) -> frozenset[str]:
    """Return the devices whose caches hold all of a model's weights, so that weights stay cached between runs.

    Args:
        figures: Figures of the devices.
        weights_bytes: Size of the whole model's weights.
    """
    return frozenset(each.device for each in figures if weights_bytes <= each.cache_bytes)
