"""Format exceptions as reasons, with the place in a plugin's code where that is asked for."""

from __future__ import annotations

import os
import traceback
from typing import Final

FRAMES: Final = "COLLAGE_FRAMES"
"""Variable that asks for the place; processes that are started inherit it."""
_OURS: Final = frozenset({"collage_core", "collage", "collage_testing", "pluggy"})
"""Packages whose frames are not a plugin's."""


def one_line(error: BaseException) -> str:
    """Format the type and text of an exception on one line, with `own_frames` if the variable `FRAMES` is set."""
    name, text = type(error).__name__, " ".join(str(error).split())
    return (f"{name}: {text}" if text else name) + asked_frames(error)


def asked_frames(error: BaseException) -> str:
    """Return `own_frames` in brackets if the variable `FRAMES` is set and there are any; otherwise nothing."""
    frames = own_frames(error) if os.environ.get(FRAMES) else ""
    return f" [{frames}]" if frames else ""


def own_frames(error: BaseException) -> str:
    """Return the frames of a plugin's own code and of its libraries on the way to an error, the innermost last.

    If an error has none, those of its cause.

    Examples:
        >>> import json
        >>> try:
        ...     json.loads("no")
        ... except ValueError as error:
        ...     own_frames(error).endswith(" in raw_decode")
        True
    """
    frames = [
        f"{frame.f_code.co_filename}:{line} in {frame.f_code.co_name}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).split(".")[0] not in _OURS
    ]
    if not frames and error.__cause__ is not None:
        return own_frames(error.__cause__)
    return " > ".join(frames)
