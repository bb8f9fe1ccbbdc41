"""`fusion_specs`: candidates found by rules that the user supplies from Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from collage.setup.targets import covers
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Target, TargetSpelling, split_targets
from collage_core.errors import UsageError
from collage_core.fusion import FusionRule, FusionSpec

OwnRule: TypeAlias = FusionRule | Callable[[Target, FusionRule], FusionRule]
"""A fusion rule, or a function that makes one from a target and the target's default rule."""

_NAME = "fusion_specs"


def with_own_rules(rules: Sequence[TargetRule], given: Mapping[str, OwnRule]) -> tuple[TargetRule, ...]:
    """Replace the rules of targets with rules given by the user.

    Args:
        rules: Rules of every participating target.
        given: Rules by target list, written as for `--toolchains`: `"openvino"` or `"onnxruntime,openvino"`. One
            rule for several targets is one fusion spec: it runs once for those that refuse the same nodes, with the
            first as its context's target, and each of its candidates is offered to each of them.

    Raises:
        UsageError: If no participating target is named, a target is named twice, or a given object is not a rule.
    """
    replaced: dict[str, TargetRule] = {}
    for text, own in given.items():
        mine = [rule for rule in rules if any(covers(spelling, rule.target) for spelling in _spellings(text))]
        if not mine:
            names = ", ".join(rule.target.name for rule in rules)
            raise UsageError(f"{_NAME}[{text!r}]: no such target takes part; those that do: {names}")
        spec: FusionSpec | None = None
        if isinstance(own, FusionRule):
            spec = FusionSpec(name=text, rule=own, targets=tuple(rule.target for rule in mine))
        for rule in mine:
            if rule.target.name in replaced:
                raise UsageError(f"{_NAME}: {rule.target.name} is named by more than one of {', '.join(given)}")
            made = spec or FusionSpec(name=rule.target.name, rule=_made(text, own, rule), targets=(rule.target,))
            replaced[rule.target.name] = dataclasses.replace(rule, spec=made, own=_NAME)
    return tuple(replaced.get(rule.target.name, rule) for rule in rules)


def _spellings(text: str) -> Sequence[TargetSpelling]:
    try:
        return split_targets(text)
    except ValueError as error:
        raise UsageError(f"{_NAME}[{text!r}]: {error}") from error


def _made(text: str, own: OwnRule, rule: TargetRule) -> FusionRule:
    made = own(rule.target, rule.spec.rule) if callable(own) else own
    if not isinstance(made, FusionRule):
        raise UsageError(f"{_NAME}[{text!r}] gives {type(made).__name__}, not a FusionRule")
    return made
