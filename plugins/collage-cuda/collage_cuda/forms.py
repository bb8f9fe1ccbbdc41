"""What tables of groups share: groups that are refused, and how a product is given."""

from __future__ import annotations

import functools

from collage_core.contract import Unsupported
from collage_core.patterns import FusionPattern, Match, Pattern


def refused_form(name: str, pattern: Pattern, reason: str) -> FusionPattern:
    """Make an entry of a table for what comes close to a group and is another computation.

    Args:
        name: Name of the entry.
        pattern: What it looks like.
        reason: Why it is never taken.
    """
    return FusionPattern(name=name, pattern=pattern, check=functools.partial(_refuse, reason))


def is_turned(match: Match) -> bool:
    """Return whether `b` of a `product` is given with its axes exchanged.

    Gemm's attribute says so, or a Transpose inside the match.
    """
    node = match.node("product")
    if node.op_type == "Gemm" and node.attribute("transB", 0):
        return True
    return node.node.inputs[1] is not match.captures["b"]


def _refuse(reason: str, match: Match) -> Unsupported:
    return Unsupported(reason)
