"""Values shared by kernels on different devices, and the cost of copying them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from collage_core.contract.cost import INVALID, Cost, checked_cost


class CopyCosts(Protocol):
    """Returns the costs of copies between devices."""

    def copy_us(self, source: str, destination: str, size_bytes: int | None) -> Cost:
        """Return the cost of one copy; called once per pair of devices and size.

        Args:
            source: Device that computed the value, or where the caller provides it.
            destination: Another device.
            size_bytes: Size of the value; None if it is not known before it is computed.

        Returns:
            Microseconds, finite and >= 0; `INVALID` if there is no path between the two.
        """

    def start_us(self, device: str) -> float:
        """Return the time a device needs to start kernels once their inputs arrived; called once per device.

        A stretch of kernels is launched as a whole, and a stretch begins with a copy to the device. The start cost is
        therefore charged with copies to the device, not with kernels: in full with each value computed by kernels
        elsewhere, and once for all values the caller provides, shared equally among them.

        Returns:
            Microseconds, finite and >= 0.
        """


class CopyTable:
    """Costs by `(source, destination)`, independent of size; pairs not in the table cannot be copied between.

    Starting kernels costs nothing.

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
    """A tensor that occupies memory on some device: written by a kernel, or provided by the caller.

    A view shares its source's memory, so it is not a separate value: its readers read the source. Constants are
    placed on the devices that need them when a plan is loaded, and known shapes are not tensors: neither is
    listed.

    Attributes:
        producer: Node that computes it; None for a value provided by the caller.
        readers: Mask of the nodes that read its bytes, directly or through views; includes views.
        size_bytes: Size of the value; None if it is unknown before the value is computed.
        starts_on: Device on which the caller provides it; empty for a computed value. An input that the caller
            provides on every device that needs it is not listed.
        ends_on: Device on which it must be at the end; empty for any.
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
    """Shared values and copy costs of a problem over several devices.

    Attributes:
        values: The values that may have to be copied.
        costs: Costs of copies.
    """

    values: tuple[SharedValue, ...]
    costs: CopyCosts


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCopy:
    """A copy that a plan makes.

    Attributes:
        value: Position of the value in `DeviceCopies.values`.
        source: Device that computed it, or on which the caller provided it.
        destination: Device it is copied to, once, however many kernels read it there.
        cost_us: Cost of the copy, including its share of the cost of starting the kernels that wait for it.
    """

    value: int
    source: str
    destination: str
    cost_us: Cost
