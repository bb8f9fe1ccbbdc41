"""Reasons why a toolchain did not get a region."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutPriced:
    """The toolchain could run the region, but not at the lowest cost.

    Ties are broken by fewer kernels, then fewer toolchains, then name.

    Attributes:
        region: Position of the region among the kernels.
        cost_us: Cost of its best way to run the region, including the runtime loop's overhead per kernel.
        chosen_us: Cost of the chosen kernel, including the loop's overhead.
    """

    region: int
    cost_us: float
    chosen_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """None of the toolchain's candidates contains the node.

    Attributes:
        node: Name of the node.
        reason: Why the toolchain refuses the node.
    """

    node: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unbuildable:
    """The toolchain accepted the nodes, but failed to build the kernel.

    Attributes:
        region: Position of the region among the kernels.
        nodes: Names of the nodes of the kernel it did not build.
        reason: Why the build failed.
    """

    region: int
    nodes: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NoFit:
    """The toolchain accepts all nodes of the region, but not in kernels that fit the plan.

    Attributes:
        region: Position of the region among the kernels.
        reason: What does not fit.
    """

    region: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """The toolchain did not take part: it offers no target, or a hook of its plugin failed.

    Attributes:
        reason: Why it did not take part.
    """

    reason: str


WhyNot: TypeAlias = OutPriced | Refused | Unbuildable | NoFit | Unusable
