"""Limits on the number of candidates."""

from __future__ import annotations

import dataclasses
from typing import Literal


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CandidateBounds:
    """Limits on the candidates of one target. Exclusions are reported.

    Attributes:
        segments: Runs between neighbouring cut positions of a `joins=any` target; K segments give at most
            K * (K + 1) / 2 regions, not counting those around refused nodes.
        max_depth: Longest path, in nodes, inside a natively fused group.
        max_candidates: Maximum number of sub-graphs in the closure under combiners, smallest first.
        max_live: Maximum number of tensors that may cross a cut position.
    """

    segments: int = 6
    max_depth: int = 8
    max_candidates: int = 20_000
    max_live: int = 3

    def __post_init__(self) -> None:
        if min(self.segments, self.max_depth, self.max_candidates, self.max_live) < 1:
            raise ValueError(f"every bound is at least 1: {self}")

    @classmethod
    def preset(cls, name: Literal["quick", "default", "extensive"]) -> CandidateBounds:
        """Return the bounds of one of the command line's presets.

        | preset | segments | regions at most | depth of fused groups | candidates of the closure |
        |---|---|---|---|---|
        | quick | 4 | 10 | 4 | 2,000 |
        | default | 6 | 21 | 8 | 20,000 |
        | extensive | 16 | 136 | 12 | 100,000 |

        Raises:
            ValueError: If there is no such preset.
        """
        match name:
            case "quick":
                return cls(segments=4, max_depth=4, max_candidates=2_000)
            case "default":
                return cls()
            case "extensive":
                return cls(segments=16, max_depth=12, max_candidates=100_000)
        raise ValueError(f"no preset {name!r}; choose quick, default or extensive")
