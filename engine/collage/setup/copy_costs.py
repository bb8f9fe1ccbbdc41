"""What copies between devices cost."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from collage.setup.device_figures import DeviceFigures
from collage_core.contract import INVALID, CopyFigures, Cost
from collage_core.contract.device import HOST


class HostCopies:
    """Costs of copies by figures of each device: from one to another beside the CPU it goes through the host's memory.

    Args:
        figures: By source and destination, of which one is `"cpu"`; there is no way between others.
        starts_us: What starting a stretch of kernels takes, by device; nothing on those not named.
    """

    def __init__(
        self, figures: Mapping[tuple[str, str], CopyFigures], starts_us: Mapping[str, float] | None = None
    ) -> None:
        self._figures = dict(figures)
        self._starts_us = dict(starts_us or {})

    @classmethod
    def of(cls, figures: Iterable[DeviceFigures], eager: Iterable[str] = ()) -> HostCopies:
        """Costs by what devices take. The host waits for what it is brought, so a copy to it costs the wait as well.

        Args:
            figures: Of each device beside the CPU.
            eager: Devices all of whose targets launch kernels one by one: no graph starts there.
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
