"""Measure the duration of each phase of a run."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class PhaseClock:
    """Wall-clock seconds by phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time spent inside to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Add time to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def total(self) -> dict[str, float]:
        """Return the time of all phases, and the total."""
        return {**self.seconds, "total": time.monotonic() - self._began}
