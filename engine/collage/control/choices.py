"""What a user decides about a plan beforehand: pins, preferences, rules, a plan as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from collage.control.fusion_specs import OwnRule, with_own_rules
from collage.control.pins import Pin, Pins
from collage.control.plan_file import PlanFile, read_plan
from collage.control.tie_breaking import TieBreaking
from collage.options import OptimizeOptions
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Target
from collage_core.ir.graph.dataflow import DataflowGraph


@dataclasses.dataclass(frozen=True, kw_only=True)
class UserChoices:
    """The options that say so, read but not yet held against a model.

    Attributes:
        pins: Nodes given away.
        tie_breaking: Who is preferred where measurements cannot decide.
        given: The plan to build; None to search.
        fusion_specs: Rules that find candidates, by targets.
    """

    pins: tuple[Pin, ...]
    tie_breaking: TieBreaking
    given: PlanFile | None
    fusion_specs: Mapping[str, OwnRule]

    @classmethod
    def read(cls, options: OptimizeOptions) -> Self:
        """Reads them, before any work.

        Raises:
            UsageError: If one is misspelt, or the plan file is none.
        """
        return cls(
            pins=tuple(map(Pin.parse, options.pins)),
            tie_breaking=TieBreaking.parse(options.prefer),
            given=None if options.load_plan is None else read_plan(options.load_plan),
            fusion_specs=options.fusion_specs,
        )

    def over(self, graph: DataflowGraph, targets: Sequence[Target]) -> GraphChoices:
        """The same, of one model's nodes and of the targets that take part.

        Raises:
            UsageError: If something they name is not there.
        """
        self.tie_breaking.check(targets)
        return GraphChoices(choices=self, pins=Pins(self.pins, graph, targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class GraphChoices:
    """Wishes that can be granted.

    Attributes:
        choices: As read.
        pins: By node.
    """

    choices: UserChoices
    pins: Pins

    def rules(self, rules: Sequence[TargetRule]) -> tuple[TargetRule, ...]:
        """The rules as the user wants them: theirs in place of the plugins', pinned nodes refused for others.

        Raises:
            UsageError: If a rule is given to nobody who takes part, or is none.
        """
        return self.pins.applied(with_own_rules(rules, self.choices.fusion_specs))
