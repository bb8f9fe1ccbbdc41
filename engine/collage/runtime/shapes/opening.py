"""Which session runs a plan, or several."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from collage.devices.this_host import own_bytes
from collage.runtime.calling.shared_memory import SharedMemory
from collage.runtime.executable import Executable
from collage.runtime.places import Reserve
from collage.runtime.session import Session
from collage.runtime.shapes.ranged_session import RangedSession
from collage.runtime.shapes.shaped_session import ShapedSession
from collage_core.ir.values.size_range import Shape, SizeRange


def session_over(executable: Executable, *, strict: bool = False, shared: SharedMemory | None = None) -> Session:
    """Return a session that runs an executable: for every size if its inputs have sizes that vary.

    Args:
        executable: The executable.
        strict: Whether to refuse sizes outside its ranges.
        shared: Memory that sessions of other plans share with it; none if None.
    """
    if executable.sizes:
        return RangedSession(executable, strict=strict, shared=shared)
    return Session(executable, shared=shared)


def session_for_plans(
    executable: Callable[[int, Reserve | None], Executable],
    input_shapes: Sequence[Mapping[str, Shape]],
    *,
    strict: bool = False,
) -> Session:
    """Load plans and return a session that chooses among them; that of the only one if there is one.

    Args:
        executable: Loads a plan, by its place, with memory that others share if there are several.
        input_shapes: The shapes that each is for, by the input's name.
        strict: See `session_over`.
    """
    if len(input_shapes) == 1:
        return session_over(executable(0, None), strict=strict)
    shared = SharedMemory()
    sessions: dict[int, Session] = {}
    loaded_bytes: dict[int, int] = {}
    # the largest first, so that what is shared never has to grow
    for place in sorted(range(len(input_shapes)), key=lambda place: -_elements(input_shapes[place])):
        before = own_bytes()
        sessions[place] = session_over(executable(place, shared.reserve), strict=strict, shared=shared)
        loaded_bytes[place] = max(0, own_bytes() - before)
    return ShapedSession([sessions[place] for place in sorted(sessions)], input_shapes, loaded_bytes)


def _elements(input_shapes: Mapping[str, Shape]) -> int:
    """Return how many elements inputs of these shapes have, at most."""
    largest = (
        [extent.most if isinstance(extent, SizeRange) else extent for extent in shape]
        for shape in input_shapes.values()
    )
    return sum(math.prod(shape) for shape in largest)
