"""Compute the costs of copies between devices."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from collage.setup.device_figures import DeviceFigures
from collage_core.contract import INVALID, CopyFigures, Cost, Target
from collage_core.contract.device import HOST


class HostCopies:
    """Costs of copies from each device's figures; copies between two devices other than the CPU go through the host.

    Args:
        figures: By source and destination, one of which is `"cpu"`; there are no other direct copies.
        starts_us: Time to start a stretch of kernels, by device; zero for devices not named.
    """

    def __init__(
        self, figures: Mapping[tuple[str, str], CopyFigures], starts_us: Mapping[str, float] | None = None
    ) -> None:
        self._figures = dict(figures)
        self._starts_us = dict(starts_us or {})

    @classmethod
    def of(cls, figures: Iterable[DeviceFigures], eager: Iterable[str] = ()) -> HostCopies:
        """Compute copy costs from device figures.

        The host waits for data copied to it, so a copy to the host also costs the wait.

        Args:
            figures: Figures of each device other than the CPU.
            eager: Devices all of whose targets launch kernels one by one, where no graph is launched.
        """
        known = {each.device: each for each in figures}
        pairs: dict[tuple[str, str], CopyFigures] = {}
        for name, each in known.items():
            pairs[HOST, name] = each.to_device
            back = each.from_device
            pairs[name, HOST] = CopyFigures(latency_us=back.latency_us + each.wait_us, bytes_per_us=back.bytes_per_us)
        return cls(pairs, {name: known[name].start_us for name in known.keys() - set(eager)})

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """See `collage_core.search.CopyCosts`."""
        if size_bytes is None:  # devices hold values of static shape only
            return INVALID
        legs = [(source, destination)] if HOST in (source, destination) else [(source, HOST), (HOST, destination)]
        figures = [self._figures.get(leg) for leg in legs]
        return math.fsum(INVALID if each is None else each.copy_us(size_bytes) for each in figures)

    def start_us(self, device: str) -> float:
        """See `collage_core.search.CopyCosts`."""
        return self._starts_us.get(device, 0.0)


def host_copies(figures: Collection[DeviceFigures], targets: Iterable[Target]) -> HostCopies | None:
    """Return what copies between the devices of targets cost; None if there is no device but the CPU.

    Args:
        figures: Figures of the devices.
        targets: The targets.
    """
    graphs = {target.device for target in targets if target.launch == "graph"}
    return HostCopies.of(figures, {each.device for each in figures} - graphs) if figures else None
