"""A plan: which kernels, in which order, at which cost."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchTarget


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCopy:
    """A value that a plan brings from one device to another.

    Attributes:
        value: Its name.
        source: Device that computed it, or where it was given.
        destination: Device it is brought to, once, however many kernels read it there.
        size_bytes: Its size; None if it is not known before it is computed.
        cost_us: What that costs, as predicted.
    """

    value: str
    source: str
    destination: str
    size_bytes: int | None
    cost_us: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """One way to run a whole model.

    Attributes:
        name: Shown to users: a target's name, or `"mixed"` with a number.
        single: Whether it stands for one target alone, so that it is an incumbent.
        partitioning: Its kernels.
        costs_us: Cost of each kernel, in the order of `kernels`.
        dispatch_us: What the runtime's loop adds to each kernel it calls.
        copies: What it copies between devices.
    """

    name: str
    single: bool
    partitioning: Partitioning
    costs_us: tuple[float, ...]
    dispatch_us: float
    copies: tuple[PlannedCopy, ...] = ()

    def __post_init__(self) -> None:
        if len(self.costs_us) != len(self.partitioning.kernels):
            raise ValueError(f"plan {self.name!r} needs a cost for each kernel")

    @property
    def graph(self) -> DataflowGraph:
        """The graph it covers."""
        return self.partitioning.graph

    @property
    def kernels(self) -> tuple[CandidateKernel, ...]:
        """Its kernels in execution order; kernel `i` is call site `k000i` of the partitioned model."""
        return tuple(step for step in self.partitioning.order if isinstance(step, CandidateKernel))

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Names of the toolchains it uses, sorted."""
        return tuple(sorted({kernel.target.toolchain for kernel in self.partitioning.kernels}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets it uses, sorted."""
        return tuple(sorted({kernel.target.name for kernel in self.partitioning.kernels}))

    @property
    def cost_of(self) -> dict[int, float]:
        """Cost of each kernel, by the mask of its nodes."""
        return {
            kernel.sub_graph.nodes: cost for kernel, cost in zip(self.partitioning.kernels, self.costs_us, strict=True)
        }

    @property
    def copies_us(self) -> float:
        """What its copies between devices cost."""
        return sum(copy.cost_us for copy in self.copies)

    @property
    def predicted_us(self) -> float:
        """Sum of its kernels' costs, what the loop adds, and what copies cost."""
        return sum(self.costs_us) + sum(map(self.loop_us, self.partitioning.kernels)) + self.copies_us

    def loop_us(self, kernel: CandidateKernel) -> float:
        """What the runtime's loop adds to a kernel: nothing to those of a graph, which it does not call."""
        return SearchTarget.of(kernel.target, self.dispatch_us).dispatch_us

    @property
    def key(self) -> str:
        """Hash of what is run where; equal for equal plans of one model, so of kernels that are measured as one."""
        parts = sorted(
            (hex(kernel.sub_graph.nodes), kernel.measured_as.name, kernel.target.fingerprint, kernel.sub_graph.label)
            for kernel in self.partitioning.kernels
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
