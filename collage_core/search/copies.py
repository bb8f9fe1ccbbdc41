"""Values that kernels on different devices share, and what it costs to bring one from one device to another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from collage_core.contract.cost import INVALID, Cost, checked_cost


class CopyCosts(Protocol):
    """Answers what a copy between two devices costs."""

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """Cost of one copy; asked once per pair of devices and size.

        Args:
            source: Device that computed the value, or where the caller gave it.
            destination: Another device.
            size_bytes: Size of the value; None if it is not known before it is computed.

        Returns:
            Microseconds, finite and >= 0; `INVALID` if there is no way between the two.
        """

    def start_us(self, device: str) -> float:
        """What it takes a device to begin with kernels once it has what they read; asked once per device.

        A stretch of kernels is launched as a whole, and what is copied to a device is what begins one. So this is
        counted with copies to the device, not with kernels: with each of values that kernels compute elsewhere, and
        once for what the caller gives, shared among all of that.

        Returns:
            Microseconds, finite and >= 0.
        """


class CopyTable:
    """Costs by `(source, destination)`, whatever the size; there is no way between two that are not in the table.

    Nothing is added for starting kernels.

    Examples:
        >>> table = CopyTable({("cpu", "cuda:0"): 10.0})
        >>> table.copy_us("cpu", "cuda:0", 4096), table.copy_us("cuda:0", "cpu", 4096)
        (10.0, inf)
    """

    def __init__(self, costs_us: Mapping[tuple[str, str], Cost]) -> None:
        self._costs_us = {pair: checked_cost(cost) for pair, cost in costs_us.items()}

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """See `CopyCosts`."""
        return self._costs_us.get((source, destination), INVALID)

    def start_us(self, device: str) -> float:
        """See `CopyCosts`."""
        return 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SharedValue:
    """A tensor that has a place in memory on some device: what a kernel writes, or the caller gives.

    A view has its source's place, so it is no value of its own: who reads it reads the source. Constants are put
    where they are wanted when a plan is loaded, and shapes that are known are no tensors: neither is listed.

    Attributes:
        producer: Node that computes it; None for what the caller gives.
        readers: Mask of the nodes that read its bytes, directly or through views; views among them.
        size_bytes: Its size; None if it is not known before it is computed.
        starts_on: Device on which the caller gives it; empty for what a node computes. An input the caller gives on
            every device that wants it is not listed.
        ends_on: Device on which it has to be at the end; empty if that is no matter.
    """

    producer: int | None
    readers: int
    size_bytes: int | None
    starts_on: str = ""
    ends_on: str = ""

    def __post_init__(self) -> None:
        if (self.producer is None) != bool(self.starts_on):
            raise ValueError("a value is either computed by a node or given on a device")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopies:
    """What a problem over several devices has beside its candidates.

    Attributes:
        values: The values that may have to be copied.
        costs: What a copy costs.
    """

    values: tuple[SharedValue, ...]
    costs: CopyCosts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopy:
    """A copy that a plan makes.

    Attributes:
        value: Position of the value in `DeviceCopies.values`.
        source: Device that computed it, or where the caller gave it.
        destination: Device it is brought to, once, however many kernels read it there.
        cost_us: What that costs, with its part of what starting the kernels behind it does.
    """

    value: int
    source: str
    destination: str
    cost_us: Cost
