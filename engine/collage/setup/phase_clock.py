"""How long each phase of a run takes."""

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
        """Adds the time spent inside to a phase."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def add(self, name: str, seconds: float) -> None:
        """Adds time to a phase."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def total(self) -> dict[str, float]:
        """All phases, and the whole."""
        return {**self.seconds, "total": time.monotonic() - self._began}
