"""What a user decides about a plan beforehand: pins, preferences, rules, a plan as a whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Self

from collage_core.contract import Target
from collage_core.ir.dataflow import DataflowGraph
from collage_core.pipeline.options import OptimizeOptions
from collage_core.pipeline.own_rules import OwnRule, with_own_rules
from collage_core.pipeline.pins import Pin, Pins
from collage_core.pipeline.plan_file import PlanFile, read_plan
from collage_core.pipeline.preference import Preference
from collage_core.pipeline.proposals import TargetRule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wishes:
    """The options that say so, read but not yet held against a model.

    Attributes:
        pins: Nodes given away.
        preference: Who is preferred where measurements cannot decide.
        given: The plan to build; None to search.
        fusion_specs: Rules that find candidates, by targets.
    """

    pins: tuple[Pin, ...]
    preference: Preference
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
            preference=Preference.parse(options.prefer),
            given=None if options.load_plan is None else read_plan(options.load_plan),
            fusion_specs=options.fusion_specs,
        )

    def over(self, graph: DataflowGraph, targets: Sequence[Target]) -> Control:
        """The same, of one model's nodes and of the targets that take part.

        Raises:
            UsageError: If something they name is not there.
        """
        self.preference.check(targets)
        return Control(wishes=self, pins=Pins(self.pins, graph, targets))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Control:
    """Wishes that can be granted.

    Attributes:
        wishes: As read.
        pins: By node.
    """

    wishes: Wishes
    pins: Pins

    def rules(self, rules: Sequence[TargetRule]) -> tuple[TargetRule, ...]:
        """The rules as the user wants them: theirs in place of the plugins', pinned nodes refused for others.

        Raises:
            UsageError: If a rule is given to nobody who takes part, or is none.
        """
        return self.pins.applied(with_own_rules(rules, self.wishes.fusion_specs))
