"""Execution plans: kernels, their order and their cost."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from collage_core.contract.device import HOST
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import SearchTarget


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCopy:
    """A value that a plan copies from one device to another.

    Attributes:
        value: Name of the value.
        source: Device that computes the value, or on which the caller provides it.
        destination: Device it is copied to, once, however many kernels read it there.
        size_bytes: Size of the value; None if it is unknown before the value is computed.
        cost_us: Predicted cost of the copy.
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
        name: Name shown to users: a target's name, or `"mixed"` with a number.
        single: Whether the plan represents one target alone, which makes it an incumbent.
        partitioning: The kernels.
        costs_us: Cost of each kernel, in the order of the partitioning, which need not be the order of execution.
        dispatch_us: Overhead of the runtime's loop per kernel call.
        copies: Copies between devices.
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
        """The graph that the plan covers."""
        return self.partitioning.graph

    @property
    def kernels(self) -> tuple[CandidateKernel, ...]:
        """Kernels in execution order; kernel `i` is call site `k000i` of the partitioned model."""
        return tuple(step for step in self.partitioning.order if isinstance(step, CandidateKernel))

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Names of the toolchains used, sorted."""
        return tuple(sorted({kernel.target.toolchain for kernel in self.partitioning.kernels}))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the targets used, sorted."""
        return tuple(sorted({kernel.target.name for kernel in self.partitioning.kernels}))

    @property
    def is_on_host(self) -> bool:
        """Whether no kernel is on a device."""
        return all(kernel.target.device == HOST for kernel in self.partitioning.kernels)

    @property
    def cost_of(self) -> dict[int, float]:
        """Cost of each kernel, by the mask of its nodes."""
        return {
            kernel.sub_graph.nodes: cost for kernel, cost in zip(self.partitioning.kernels, self.costs_us, strict=True)
        }

    @property
    def copies_us(self) -> float:
        """Total cost of the copies between devices."""
        return sum(copy.cost_us for copy in self.copies)

    @property
    def predicted_us(self) -> float:
        """Sum of the kernel costs, the dispatch overhead and the copy costs."""
        return sum(self.costs_us) + sum(map(self.loop_us, self.partitioning.kernels)) + self.copies_us

    def loop_us(self, kernel: CandidateKernel) -> float:
        """Return the overhead that the runtime's loop adds to a kernel, in microseconds.

        It is zero for kernels launched from a device graph, which the loop does not call.
        """
        return SearchTarget.of(kernel.target, self.dispatch_us).dispatch_us

    @property
    def key(self) -> str:
        """Hash of the nodes, target and form of each kernel.

        Equal for equal plans of one model, including plans whose kernels share their measurements.
        """
        parts = sorted(
            (hex(kernel.sub_graph.nodes), kernel.measured_as.name, kernel.target.fingerprint, kernel.sub_graph.form)
            for kernel in self.partitioning.kernels
        )
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
