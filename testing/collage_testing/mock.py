"""Mock toolchains for tests: their claims are given, and costs are a function of the candidate."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from collage_core.contract import (
    Cost,
    Joins,
    KernelProfile,
    ProfiledPart,
    Supported,
    Target,
    Unsupported,
)
from collage_core.fusion import CandidateKernel, FusionRule, SubGraph
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.tensor_spec import ValueKind
from collage_core.patterns import FusionPattern, NodeContext, Pattern, PatternTable
from collage_core.patterns.table import Predicate


@dataclasses.dataclass(frozen=True, slots=True)
class CandidateView:
    """A candidate as a cost function sees it.

    Attributes:
        kernel: The candidate.
    """

    kernel: CandidateKernel

    @property
    def target(self) -> Target:
        """Target that would run the candidate."""
        return self.kernel.target

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes, in the graph's order."""
        return self.kernel.sub_graph.names

    @property
    def operators(self) -> tuple[str, ...]:
        """Operator types of its nodes that need a kernel, in the graph's order."""
        graph = self.kernel.sub_graph.graph
        return tuple(
            graph.nodes[index].op_type for index in iterate_bits(self.kernel.sub_graph.nodes & graph.needs_kernel)
        )

    @property
    def composite(self) -> str:
        """Label of the pattern the whole candidate matched, or `""`."""
        return self.kernel.sub_graph.label

    @property
    def elements(self) -> int:
        """Number of elements of all tensors its nodes produce; a bounded tensor counts at its bound."""
        graph = self.kernel.sub_graph.graph
        specs = (
            graph.spec(value)
            for index in iterate_bits(self.kernel.sub_graph.nodes & graph.needs_kernel)
            for value in graph.nodes[index].outputs
            if value.name
        )
        return sum(math.prod(spec.static_shape) for spec in specs if spec.kind is not ValueKind.FOREIGN)


CostFunction: TypeAlias = Callable[[CandidateView], Cost | Unsupported]
"""Returns a candidate's cost in microseconds, or why the toolchain fails to build it."""


def per_operator(costs_us: Mapping[str, float], *, launch_us: float = 0.0) -> CostFunction:
    """Make a cost function in which an operator costs the same in every candidate.

    Args:
        costs_us: Microseconds by operator type; candidates with another operator are refused.
        launch_us: Fixed cost of each candidate, so that fusing pays.
    """

    def cost(candidate: CandidateView) -> Cost | Unsupported:
        unknown = [operator for operator in candidate.operators if operator not in costs_us]
        if unknown:
            return Unsupported(f"no cost is given for {unknown[0]}")
        return launch_us + sum(costs_us[operator] for operator in candidate.operators)

    return cost


@dataclasses.dataclass(frozen=True, eq=False)
class MockToolchain:
    """A toolchain for tests, and the plugin that provides it.

    With neither `patterns`, `operators` nor `predicates` it has the default of any such plugin: native fusion of
    everything that is not opaque. It only prices; `collage_testing.kit.ExecutingMock` also builds and runs kernels.

    Attributes:
        name: The toolchain's name.
        costs_us: Cost of a candidate: microseconds by operator, which add up, or a function of the candidate.
        patterns: Groups for which it has one kernel: patterns by label, in priority order, or the table's own entries.
        operators: Operators it runs anywhere.
        predicates: Operators it runs conditionally: predicates in the form `PatternTable.predicate` takes.
        joins: How far it optimises across operators.
        targets: Its targets, the default one first; one on the CPU if None.
        query: Reason by name of each node the library itself refuses.
        rule: Wraps or replaces the default rule of each target.
        unusable: Why it offers no target; empty if it does.

    Examples:
        >>> toolchain = MockToolchain("blas", costs_us={"MatMul": 10.0}, operators=["MatMul"])
        >>> toolchain.collage_targets()[0].name
        'blas'
    """

    name: str
    _: dataclasses.KW_ONLY
    costs_us: Mapping[str, float] | CostFunction
    patterns: Mapping[str, Pattern] | Iterable[FusionPattern] = ()
    operators: Iterable[str] = ()
    predicates: Mapping[str, Predicate] = dataclasses.field(default_factory=dict)
    joins: Joins = Joins.NONE
    targets: Sequence[Target] | None = None
    query: Mapping[str, str] | None = None
    rule: Callable[[Target, FusionRule], FusionRule] | None = None
    unusable: str = ""

    def cost(self, candidate: CandidateKernel) -> Cost | Unsupported:
        """Return the cost of a candidate, or the reason why this toolchain fails to build it."""
        costs = per_operator(self.costs_us) if isinstance(self.costs_us, Mapping) else self.costs_us
        return costs(CandidateView(candidate))

    def profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported:
        """Return the cost of each node as a kernel of its own; a node that has none is in no part."""
        graph = candidate.sub_graph.graph
        parts = []
        for index in iterate_bits(candidate.sub_graph.nodes & graph.needs_kernel):
            cost = self.cost(dataclasses.replace(candidate, sub_graph=SubGraph(graph, 1 << index)))
            if not isinstance(cost, Unsupported) and math.isfinite(cost):
                parts.append(ProfiledPart(nodes=(graph.names[index],), time_us=float(cost)))
        if not any(part.time_us for part in parts):
            return Unsupported("no node of it takes time on its own")
        return KernelProfile(parts=tuple(parts))

    # Hooks

    @hookimpl
    def collage_targets(self) -> Sequence[Target] | Unsupported:
        """Return the configured targets, or one on the CPU."""
        if self.unusable:
            return Unsupported(self.unusable)
        if self.targets is not None:
            return self.targets
        return [Target(toolchain=self.name, fingerprint=f"{self.name} mock", joins=self.joins)]

    @hookimpl
    def collage_register_patterns(self, table: PatternTable) -> None:
        """Register the configured patterns."""
        entries = self.patterns
        if isinstance(entries, Mapping):
            entries = [FusionPattern(name=name, pattern=pattern) for name, pattern in entries.items()]
        for entry in entries:
            table.add(entry)

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        """Register the configured patterns."""
        for operator in self.operators:
            table.predicate(operator, _takes)
        for operator, predicate in self.predicates.items():
            table.predicate(operator, predicate)

    @hookimpl
    def collage_fusion_spec(self, target: Target, default: FusionRule) -> FusionRule | None:
        """Return the configured rule, if any."""
        return None if self.rule is None else self.rule(target, default)

    @hookimpl
    def collage_query(self) -> Mapping[str, str] | None:
        """Return the configured refusals."""
        return self.query


def _takes(node: NodeContext) -> Supported:
    return Supported()
