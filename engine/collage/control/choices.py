"""Read the user's choices about a plan: pins, tie-breaking, fusion rules, a whole plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from collage.control.fusion_specs import OwnRule, with_own_rules
from collage.control.metric import UserMetric
from collage.control.pins import Pin, Pins
from collage.control.plan_file import PlanFile, read_plan
from collage.control.tie_breaking import TieBreaking
from collage.options import OptimizeOptions
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserChoices:
    """The user's choices about a plan, parsed but not yet resolved against a model.

    Attributes:
        pins: Nodes assigned to a toolchain.
        tie_breaking: Preferred targets where measurements cannot decide.
        given: The plan to build; None to search.
        fusion_specs: Candidate-finding rules, by targets.
        metric: What says how good outputs are; None if only their error counts.
    """

    pins: tuple[Pin, ...]
    tie_breaking: TieBreaking
    given: PlanFile | None
    fusion_specs: Mapping[str, OwnRule]
    metric: UserMetric | None

    @classmethod
    def read(cls, options: OptimizeOptions) -> Self:
        """Parse the user's choices from the options, before any work.

        Raises:
            UsageError: If a choice is misspelt, or the plan file or the metric is invalid.
        """
        metric = None
        if options.metric is not None and options.max_drop is not None:
            metric = UserMetric.read(options.metric, options.max_drop)
        return cls(
            pins=tuple(map(Pin.parse, options.pins)),
            tie_breaking=TieBreaking.parse(options.prefer),
            given=None if options.load_plan is None else read_plan(options.load_plan),
            fusion_specs=options.fusion_specs,
            metric=metric,
        )

    def over(self, graph: DataflowGraph, targets: Sequence[Target]) -> GraphChoices:
        """Resolve the choices to the nodes of one model and the participating targets.

        Raises:
            UsageError: If a choice names a node or target that does not exist.
        """
        self.tie_breaking.check(targets)
        return GraphChoices(choices=self, pins=Pins(self.pins, graph, targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphChoices:
    """The user's choices, resolved against one model and its targets.

    Attributes:
        choices: The choices as parsed.
        pins: Pins, resolved to nodes.
    """

    choices: UserChoices
    pins: Pins

    def rules(self, rules: Sequence[TargetRule]) -> tuple[TargetRule, ...]:
        """Apply the choices to the rules: replace rules that the user gave and refuse pinned nodes to other targets.

        Raises:
            UsageError: If a rule is given for no participating target, or is invalid.
        """
        return self.pins.applied(with_own_rules(rules, self.choices.fusion_specs))
