"""Result of a partitioning, with reasons for what each toolchain did not get."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import cast

import onnx_ir

from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Target
from collage_core.errors import NoCoverError
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits
from collage_core.search import SearchTarget
from collage_testing.reasons import NoFit, OutPriced, Refused, Unbuildable, Unusable, WhyNot

NOT_NAMED = "no pattern of it matches around this node"
"""Reason of a refusal for which no pattern gave one: the toolchain has patterns, and none came near."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChosenKernel:
    """One kernel of a result.

    Attributes:
        toolchain: Toolchain that runs it.
        target: Name of the target.
        nodes: Names of its nodes, in the graph's order.
        operators: Operator types of its nodes.
        composite: Label of the pattern the whole kernel matched, or `""`.
        cost_us: Cost without the overhead of the runtime's loop.
    """

    toolchain: str
    target: str
    nodes: tuple[str, ...]
    operators: tuple[str, ...]
    composite: str
    cost_us: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class PartitionResult:
    """Result of a partitioning.

    Attributes:
        model: The partitioned model.
        plan: The chosen kernels over the graph.
        exact: Whether no plan of these candidates is cheaper.
        proposals: Proposals and refusals of each target, by target name.
        unusable: Why a toolchain took no part, by name.
    """

    model: onnx_ir.Model = dataclasses.field(repr=False)
    plan: Plan = dataclasses.field(repr=False)
    exact: bool
    proposals: Mapping[str, Proposals] = dataclasses.field(repr=False)
    unusable: Mapping[str, str]
    _pool: CandidatePool = dataclasses.field(repr=False)

    @property
    def kernels(self) -> tuple[ChosenKernel, ...]:
        """The kernels, in execution order; kernel `i` is call site `k000i` of the model."""
        graph, costs = self.plan.graph, self.plan.cost_of
        return tuple(
            ChosenKernel(
                toolchain=kernel.target.toolchain,
                target=kernel.target.name,
                nodes=kernel.sub_graph.names,
                operators=tuple(graph.nodes[index].op_type for index in iterate_bits(kernel.sub_graph.nodes)),
                composite=kernel.sub_graph.label,
                cost_us=costs[kernel.sub_graph.nodes],
            )
            for kernel in self.plan.kernels
        )

    @property
    def total_us(self) -> float:
        """Cost of all kernels, including the overhead that the runtime's loop adds to each."""
        return self.plan.predicted_us

    def why_not(self, toolchain: str) -> list[WhyNot]:
        """Explain why a toolchain did not get some regions; empty if it got all.

        Args:
            toolchain: Its name.

        Raises:
            KeyError: If the toolchain did not take part.
        """
        if toolchain in self.unusable:
            return [Unusable(reason=self.unusable[toolchain])]
        mine = [each.rule.target for each in self.proposals.values() if each.rule.target.toolchain == toolchain]
        if not mine:
            raise KeyError(f"toolchain {toolchain!r} was not asked")
        found: dict[WhyNot, None] = {}
        for region, kernel in enumerate(self.plan.kernels):
            if kernel.target.toolchain != toolchain:
                answers = [self._why_not(region, kernel, target) for target in mine]
                priced = [answer for answer in answers if isinstance(answer[0], OutPriced)]
                best = min(priced, key=lambda a: cast(OutPriced, a[0]).cost_us) if priced else answers[0]
                found.update(dict.fromkeys(best))
        return list(found)

    def _why_not(self, region: int, kernel: CandidateKernel, target: Target) -> list[WhyNot]:
        nodes = kernel.sub_graph.nodes
        mine = SearchTarget.of(target)
        others = [other.target for other in self.plan.kernels if other is not kernel]
        strangers = [other.name for other in others if not mine.mixes_with(SearchTarget.of(other))]
        if strangers:
            return [NoFit(region=region, reason=f"{target.name} cannot share a plan with {strangers[0]}")]
        try:
            cost_us = self._pool.engine(within=nodes, target=target.name).run().total_us
        except NoCoverError:
            return self._why_no_cover(region, nodes, target)
        chosen_us = self.plan.cost_of[nodes] + self.plan.loop_us(kernel)
        if cost_us < chosen_us:  # it would have been taken, had it not closed a circle
            return [NoFit(region=region, reason="its kernels and the others would wait for each other in a circle")]
        return [OutPriced(region=region, cost_us=cost_us, chosen_us=chosen_us)]

    def _why_no_cover(self, region: int, nodes: int, target: Target) -> list[WhyNot]:
        graph, proposals = self.plan.graph, self.proposals[target.name]
        alone = nodes & graph.needs_kernel & ~proposals.covered
        found: list[WhyNot] = [
            Refused(node=graph.names[index], reason=proposals.refusals.get(index, NOT_NAMED))
            for index in iterate_bits(alone)
        ]
        for candidate in proposals.candidates:
            rejection = self._pool.rejection(candidate)
            if not candidate.sub_graph.nodes & ~nodes and rejection is not None:
                found.append(Unbuildable(region=region, nodes=candidate.sub_graph.names, reason=rejection.reason))
        return found or [NoFit(region=region, reason="no set of its candidates covers just these nodes")]
