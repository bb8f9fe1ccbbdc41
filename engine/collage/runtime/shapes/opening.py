"""Which session runs a plan, or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from collage.runtime.executable import Executable
from collage.runtime.session import Session
from collage.runtime.shapes.ranged_session import RangedSession
from collage.runtime.shapes.shaped_session import ShapedSession
from collage_core.ir.values.size_range import Shape


def session_over(executable: Executable, *, strict: bool = False) -> Session:
    """Return a session that runs an executable: for every size if its inputs have sizes that vary."""
    return RangedSession(executable, strict=strict) if executable.sizes else Session(executable)


def session_for_plans(sessions: Sequence[Session], input_shapes: Sequence[Mapping[str, Shape]]) -> Session:
    """Return a session that chooses among those of several plans; the only one if there is one.

    Args:
        sessions: A session for each plan.
        input_shapes: The shapes that each is for, by the input's name.
    """
    return sessions[0] if len(sessions) == 1 else ShapedSession(sessions, input_shapes)
