"""Group equivalent refusals, so that each is reported once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from collage_core.candidates.refusals import Refusal, Remembered, oldest

_PARTICULAR = re.compile(r"'[^']*'|\"[^\"]*\"|[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
"""Parts in which refusals for the same reason differ: quoted names and numbers."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RefusalGroup:
    """Refusals of one target, at one stage, for one reason up to names and numbers.

    Attributes:
        target: Target name.
        stage: Where it refused.
        reason: The first reason, in the library's or the plugin's words.
        variants: Number of different wordings.
        refusals: Number of refusals.
        nodes: Names of the affected nodes, each once, in the order met.
        remembered: Where it is known from, of several the oldest; None if the run found it out.
    """

    target: str
    stage: str
    reason: str
    variants: int
    refusals: int
    nodes: tuple[str, ...]
    remembered: Remembered | None = None

    @property
    def text(self) -> str:
        """The reason, with the number of similar ones, and since when it is known."""
        like = "" if self.variants == 1 else f" (and {self.variants - 1} like it)"
        return f"{self.reason}{like}" + (f"; {self.remembered}" if self.remembered else "")


def group_refusals(refusals: Iterable[Refusal]) -> tuple[RefusalGroup, ...]:
    """Group refusals, ordered by the target's name and then by the number of nodes, largest first."""
    groups: dict[tuple[str, str, str], list[Refusal]] = {}
    for refusal in refusals:
        key = (refusal.target, refusal.stage, _PARTICULAR.sub("#", refusal.reason))
        groups.setdefault(key, []).append(refusal)
    made = [_group(members) for members in groups.values()]
    return tuple(sorted(made, key=lambda g: (g.target, -len(g.nodes), -g.refusals, g.stage, g.reason)))


def _group(members: list[Refusal]) -> RefusalGroup:
    reasons = list(dict.fromkeys(refusal.reason for refusal in members))
    return RefusalGroup(
        target=members[0].target,
        stage=members[0].stage,
        reason=min(reasons),
        variants=len(reasons),
        refusals=len(members),
        nodes=tuple(dict.fromkeys(node for refusal in members for node in refusal.nodes)),
        remembered=oldest(refusal.remembered for refusal in members),
    )
