"""What devices take for what kernels do not, and what a plan has them do."""

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
        latency_us: What one of hardly any bytes takes.
        gb_per_s: Gigabytes (10^9 bytes) moved per second beyond that.
    """

    latency_us: float
    gb_per_s: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What a device takes for what kernels do not.

    Attributes:
        name: The device.
        to_device: Copies from the host.
        from_device: Copies to the host.
        within: Copies within it.
        wait_us: What it takes the host to wait for it.
        start_us: What launching a graph of kernels adds to the copy before it, until the first of them begins.
        cache_bytes: Its last-level cache; 0 if unknown.
        assumed: Why these are not measured but assumed; empty if they are measured.
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
        kernels: How many.
        reason: Why not as a graph; empty if as one.
    """

    device: str
    mode: str
    kernels: int
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWorkFacts:
    """What each run has devices do.

    Attributes:
        graph_launches: Graphs launched.
        eager_launches: Kernels launched one by one.
        copies: Copies to, from and within devices.
        synchronisations: How often the host waits for a device.
        launches: Each, in order.
    """

    graph_launches: int = 0
    eager_launches: int = 0
    copies: int = 0
    synchronisations: int = 0
    launches: tuple[LaunchFacts, ...] = ()

    @property
    def is_none(self) -> bool:
        """Whether devices take no part."""
        return not (self.launches or self.copies or self.synchronisations)

    def counts(self) -> str:
        """The numbers in a phrase."""
        return (
            f"{figures.counted(self.graph_launches, 'graph launch', 'graph launches')}, "
            f"{figures.counted(self.eager_launches, 'eager launch', 'eager launches')}, "
            f"{figures.counted(self.copies, 'copy', 'copies')}, "
            f"{figures.counted(self.synchronisations, 'synchronisation')}"
        )

    def eager_reasons(self) -> tuple[tuple[str, int], ...]:
        """Why kernels are launched one by one, each reason with the number of kernels; most first."""
        found: dict[str, int] = {}
        for launch in self.launches:
            if launch.mode == "eager":
                found[launch.reason] = found.get(launch.reason, 0) + launch.kernels
        return tuple(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def describe_work(work: DeviceWork) -> DeviceWorkFacts:
    """What the runtime says of a run, as facts."""
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
    """Figures of copies as facts."""
    return CopySpeed(latency_us=round(latency_us, 3), gb_per_s=round(bytes_per_us / 1000, 3))
