"""How the loops of one group may be arranged: what there is to tune, and in which order it is tried."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from collage_core.contract import Host

_LEVELS: Mapping[str, tuple[str, ...]] = {
    # of the x86-64 psABI; names of flags as Linux has them
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", "bmi2", "f16c", "movbe"),
    "x86-64-v3": ("avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"),
}
_LANES: Mapping[str, int] = {"x86-64-v4": 16, "x86-64-v3": 8, "": 4}
_WORTH_A_THREAD = 1 << 14
"""Elements below which handing work to another thread costs more than it saves."""


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """One arrangement of loops.

    Attributes:
        lanes: Elements side by side in the innermost loop, unrolled and vectorised; 1 leaves that to LLVM.
        chunks: Parts that threads take; 1 for none.
    """

    lanes: int = 1
    chunks: int = 1

    @property
    def name(self) -> str:
        """Name of the variant; the same for equal arrangements, whenever and wherever they are made."""
        lanes = f"v{self.lanes}" if self.lanes > 1 else "plain"
        return f"{lanes}x{self.chunks}" if self.chunks > 1 else lanes


def processor_level(host: Host) -> str:
    """The newest level of x86-64 a machine has, as LLVM names it; empty for the oldest, and for other processors."""
    return next((level for level, flags in _LEVELS.items() if set(flags) <= host.cpu_flags), "")


def level_flags(level: str) -> tuple[str, ...]:
    """CPU features that code for a level needs."""
    return _LEVELS.get(level, ())


def schedules(shapes: Sequence[Sequence[int]], threads: int, level: str) -> tuple[Schedule, ...]:
    """Arrangements worth trying, best guess first.

    Args:
        shapes: Of the group's outputs.
        threads: CPU threads it may use.
        level: From `processor_level`.

    Examples:
        >>> [each.name for each in schedules([(64, 96)], 1, "x86-64-v3")]
        ['v8', 'v32', 'plain']
        >>> [each.name for each in schedules([(4, 7)], 1, "x86-64-v3")]
        ['plain']
        >>> [each.name for each in schedules([(1024, 1024)], 2, "")]
        ['v4x2', 'v4', 'v16x2', 'v16', 'plainx2', 'plain']
    """
    innermost = math.gcd(*(shape[-1] if shape else 1 for shape in shapes))
    rows = math.gcd(*(math.prod(shape[:-1]) for shape in shapes))
    elements = max(math.prod(shape) for shape in shapes)
    lanes = [lanes for lanes in (_LANES[level], 4 * _LANES[level]) if innermost % lanes == 0]
    shared = threads > 1 and elements >= threads * _WORTH_A_THREAD and rows >= threads
    chunks = [threads, 1] if shared else [1]
    return tuple(Schedule(lanes=each, chunks=parts) for each in (*lanes, 1) for parts in chunks)
