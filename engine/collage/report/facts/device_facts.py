"""Facts about device costs beside kernels, and about a plan's device work."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from collage.report import figures

if TYPE_CHECKING:
    from collage.runtime import DeviceWork


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopySpeed:
    """Copies in one direction.

    Attributes:
        latency_us: Time of a copy of almost no bytes, in microseconds.
        gb_per_s: Gigabytes (10^9 bytes) moved per second beyond that.
    """

    latency_us: float
    gb_per_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """Costs of a device beside its kernels.

    Attributes:
        name: The device.
        to_device: Copies from the host.
        from_device: Copies to the host.
        within: Copies within the device.
        wait_us: Time for the host to wait for the device.
        start_us: Time a graph launch adds to the copy before it, until the graph's first kernel begins.
        cache_bytes: Size of its last-level cache; 0 if unknown.
        assumed: Why the figures are assumed; empty if they are measured.
    """

    name: str
    to_device: CopySpeed
    from_device: CopySpeed
    within: CopySpeed
    wait_us: float
    start_us: float
    cache_bytes: int
    assumed: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """Kernels of a device that are launched together, or one that is launched by itself.

    Attributes:
        device: The device.
        mode: `"graph"` or `"eager"`.
        kernels: Number of kernels.
        reason: Why they are not launched as a graph; empty if they are.
    """

    device: str
    mode: str
    kernels: int
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWorkFacts:
    """Device work of each run.

    Attributes:
        graph_launches: Graphs launched.
        eager_launches: Kernels launched one by one.
        copies: Copies to, from and within devices.
        synchronisations: How often the host waits for a device.
        launches: All launches, in order.
    """

    graph_launches: int = 0
    eager_launches: int = 0
    copies: int = 0
    synchronisations: int = 0
    launches: tuple[LaunchFacts, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether the run uses no device."""
        return not (self.launches or self.copies or self.synchronisations)

    def counts(self) -> str:
        """Format the counts as a phrase."""
        return (
            f"{figures.counted(self.graph_launches, 'graph launch', 'graph launches')}, "
            f"{figures.counted(self.eager_launches, 'eager launch', 'eager launches')}, "
            f"{figures.counted(self.copies, 'copy', 'copies')}, "
            f"{figures.counted(self.synchronisations, 'synchronisation')}"
        )

    def eager_reasons(self) -> tuple[tuple[str, int], ...]:
        """Return why kernels are launched one by one: each reason with its number of kernels, largest first."""
        found: dict[str, int] = {}
        for launch in self.launches:
            if launch.mode == "eager":
                found[launch.reason] = found.get(launch.reason, 0) + launch.kernels
        return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def describe_work(work: DeviceWork) -> DeviceWorkFacts:
    """Convert the runtime's description of a run into facts."""
    return DeviceWorkFacts(
        graph_launches=work.graph_launches,
        eager_launches=work.eager_launches,
        copies=work.copies,
        synchronisations=work.synchronisations,
        launches=tuple(
            LaunchFacts(device=launch.device, mode=launch.mode, kernels=launch.kernels, reason=launch.reason)
            for launch in work.launches
        ),
    )


def speed(latency_us: float, bytes_per_us: float) -> CopySpeed:
    """Convert the latency and bandwidth of copies into facts, rounded for the report."""
    return CopySpeed(latency_us=round(latency_us, 3), gb_per_s=round(bytes_per_us / 1000, 3))
