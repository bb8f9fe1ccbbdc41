"""A clock for deadlines, which passes them when something has said that it hangs and at no other time."""

from __future__ import annotations

from pathlib import Path

HANGS = "HANGS"
"""Variable with the file to which a process adds a byte before it hangs."""
LEAP_S = 1e9
_LOOKS = 3
"""A driver looks at the clock before it reads. After so many looks it has read what was said before the hang."""


class HangClock:
    """Stands still until something hangs, then leaps beyond every deadline there is.

    So a test of a deadline needs no short one, which what is well might miss on a busy machine.

    Args:
        note: The file named by `HANGS`.
    """

    def __init__(self, note: Path) -> None:
        self.note = note
        self._leaps = self._looks = 0
        note.touch()

    @property
    def owed(self) -> int:
        """Processes that said that they hang, and that nobody waited for."""
        return self.note.stat().st_size - self._leaps

    def __call__(self) -> float:
        hangs = self.note.stat().st_size
        if hangs > self._leaps:
            self._looks += 1
            if self._looks > _LOOKS:
                self._leaps, self._looks = hangs, 0
        return LEAP_S * self._leaps
