"""A toolchain's own profile of one kernel: the time of each part of the kernel, and the nodes the part computes."""

from __future__ import annotations

import dataclasses
import math


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledPart:
    """Nodes that the library computes together, and their time.

    Attributes:
        nodes: Names of nodes of the kernel function, at least one; several where the library fused them.
        time_us: Time of one run of the part, in microseconds, `conversion_us` included.
        conversion_us: Time of the conversions that the library inserted for the part's values: layout reorders,
            transpositions, casts. Another choice of kernels around the part needs other conversions.
    """

    nodes: tuple[str, ...]
    time_us: float
    conversion_us: float = 0.0

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ValueError("a part computes at least one node")
        if not (math.isfinite(self.time_us) and 0 <= self.conversion_us <= self.time_us):
            raise ValueError(f"times are finite and 0 <= conversion_us <= time_us; {self} is not so")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class UnattributedTime:
    """Time of what the library ran for no node in particular.

    Attributes:
        name: What it is, in the library's words.
        time_us: Time of one run, in microseconds.
    """

    name: str
    time_us: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.time_us) and self.time_us >= 0):
            raise ValueError(f"times are finite and >= 0; {self} is not so")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Where the time of one kernel goes, by the library's own profiler.

    Profiling takes time itself, so the total is not the latency of the kernel: compare shares.

    Attributes:
        parts: Time of the kernel's nodes; a node is in at most one part. A node in none takes no time: the library
            removed it, or computed it when it built the kernel.
        unattributed: The rest, largest first.

    Examples:
        >>> KernelProfile(
        ...     parts=(ProfiledPart(nodes=("conv", "relu"), time_us=9.0),),
        ...     unattributed=(UnattributedTime(name="reorder", time_us=1.0),),
        ... ).attributed_share
        0.9
    """

    parts: tuple[ProfiledPart, ...]
    unattributed: tuple[UnattributedTime, ...] = ()

    def __post_init__(self) -> None:
        named = [name for part in self.parts for name in part.nodes]
        if len(set(named)) < len(named):
            twice = next(name for name in named if named.count(name) > 1)
            raise ValueError(f"node {twice!r} is in two parts")
        if not self.attributed_us > 0:
            raise ValueError("a profile has a part that takes time")

    @property
    def attributed_us(self) -> float:
        """Time of all parts, in microseconds."""
        return math.fsum(part.time_us for part in self.parts)

    @property
    def unattributed_us(self) -> float:
        """Time of the rest, in microseconds."""
        return math.fsum(each.time_us for each in self.unattributed)

    @property
    def total_us(self) -> float:
        """Time of one run as the library's profiler adds it up, in microseconds."""
        return self.attributed_us + self.unattributed_us

    @property
    def attributed_share(self) -> float:
        """Share of the total that parts take."""
        return self.attributed_us / self.total_us
