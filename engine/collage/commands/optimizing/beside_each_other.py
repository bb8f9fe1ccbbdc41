"""What plans that run in one process with plans for other shapes are made of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from collage.options import OptimizeOptions
from collage_core.candidates.proposals import TargetRule


def beside_each_other(each: Sequence[OptimizeOptions]) -> list[OptimizeOptions]:
    """Return the options for the plans of one package; several are marked by `OptimizeOptions.beside_others`."""
    return list(each) if len(each) < 2 else [dataclasses.replace(one, beside_others=True) for one in each]


def mixable_rules(rules: tuple[TargetRule, ...]) -> tuple[tuple[TargetRule, ...], str]:
    """Leave out targets that do not mix, unless no others are left.

    Returns:
        The rules of the others, and a note on what was left out; empty if nothing was.
    """
    kept = tuple(rule for rule in rules if rule.target.mixable)
    left_out = ", ".join(rule.target.name for rule in rules if not rule.target.mixable)
    if not kept or not left_out:
        return rules, ""
    return kept, f"left out: {left_out}, which would slow the plans for other shapes in the same process"
