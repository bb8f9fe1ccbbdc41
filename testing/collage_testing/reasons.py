"""Why a toolchain did not get a region."""

from __future__ import annotations

import dataclasses
from typing import TypeAlias


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OutPriced:
    """It could run the region, at a cost.

    Equal costs are told apart by fewer kernels, then fewer toolchains, then name.

    Attributes:
        region: Position of the region among the kernels.
        cost_us: What its best way to run the region costs, with what the runtime's loop adds to each kernel.
        chosen_us: What the chosen kernel costs, with what the loop adds to it.
    """

    region: int
    cost_us: float
    chosen_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A node is in none of its candidates.

    Attributes:
        node: Name of the node.
        reason: Why.
    """

    node: str
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unbuildable:
    """It took the nodes and then did not build the kernel.

    Attributes:
        region: Position of the region among the kernels.
        nodes: Names of the nodes of the kernel it did not build.
        reason: Why.
    """

    region: int
    nodes: tuple[str, ...]
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NoFit:
    """It takes all nodes of the region, but not in kernels that could take its place in the plan.

    Attributes:
        region: Position of the region among the kernels.
        reason: What does not fit.
    """

    region: int
    reason: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Unusable:
    """It took no part: it offers no target, or a hook of its plugin failed.

    Attributes:
        reason: Why.
    """

    reason: str


WhyNot: TypeAlias = OutPriced | Refused | Unbuildable | NoFit | Unusable
