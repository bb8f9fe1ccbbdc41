"""Variants of a group's schedule, and which differ."""

from __future__ import annotations

import dataclasses

from collage_halide.pipeline import Group
from collage_halide.stages import Stage

MOST_COPIED = 256
"""Operations of one stage that a reader may repeat: beyond, Halide compiles for many seconds what is slow anyway."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Arrangement:
    """A variant of the schedule.

    Attributes:
        vectors: Vectors along the innermost axis that are computed together, where that axis is shared; 0 for no
            vectors at all.
        keep: Whether what several readers read is kept, instead of computed again by each.
    """

    vectors: int
    keep: bool = True

    @property
    def name(self) -> str:
        """Its name."""
        return f"{'kept' if self.keep else 'inline'}-{self.vectors}"


PLAIN = Arrangement(vectors=0)
"""For what Halide compiles in no other way."""


def arrangements(group: Group) -> list[Arrangement]:
    """Return the variants that differ for a group, best guess first.

    What gathers keeps its indices and factors in registers for one vector, and in memory for several.
    """
    blocks: tuple[int, ...] = (1, 4, 32) if any(stage.gathers for stage in group.stages) else (4, 1, 32)
    if all(stage.role == "output" for stage in group.stages):
        blocks = blocks[:1]
    keeps = (True, False) if _may_inline(group) else (True,)
    return [Arrangement(vectors=vectors, keep=keep) for vectors in blocks for keep in keeps]


def _may_inline(group: Group) -> bool:
    """Return whether there is something kept that may be computed by its readers, and not too often by each."""
    found = {stage for stage in group.stages if stage.role == "kept" and stage.may_be_inlined}
    operations: dict[Stage, int] = {}
    for stage in group.stages:
        copied = stage.repeats * sum(operations[source] for source, _ in stage.reads if source in found)
        if copied > MOST_COPIED:
            return False
        operations[stage] = stage.work + copied
    return bool(found)


def is_inlined(stage: Stage, how: Arrangement) -> bool:
    """Return whether a stage is computed by each of its readers."""
    return stage.role == "kept" and stage.may_be_inlined and (stage.seldom_kept or not how.keep)
