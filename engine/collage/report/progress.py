"""Progress of long work: what is being done, how far it is, how long it will still take."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from collage.report.figures import seconds


class Progress(Protocol):
    """Takes news of long work. Work is phases one after another, each of steps."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Begins a phase and ends the one before.

        Args:
            name: What is being done, e.g. `"measuring"`.
            total: Steps it will take; None if nobody knows.
        """

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Reports finished steps of the current phase.

        Args:
            steps: Steps finished since the last call; 0 to change the total only.
            total: How many steps the phase takes by what is known now; None if that did not change.
        """

    def message(self, text: str) -> None:
        """Shows one line that stays, such as a toolchain that crashed."""

    def done(self) -> None:
        """Ends the last phase and gives the screen back. May be called again."""


class SilentProgress:
    """Shows nothing."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Ignores it."""

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Ignores it."""

    def message(self, text: str) -> None:
        """Ignores it."""

    def done(self) -> None:
        """Ignores it."""


class LineProgress:
    """A line when a phase begins, one every few seconds, one when it ends: for logs and pipes.

    Args:
        stream: Where lines go.
        interval_s: Least time between two lines about the same phase.
        clock: Seconds that never go back.
    """

    def __init__(self, stream: IO[str], interval_s: float = 5.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._interval_s = interval_s
        self._clock = clock
        self._name = ""
        self._total: int | None = None
        self._finished = 0
        self._began = self._spoke = 0.0

    def phase(self, name: str, total: int | None = None) -> None:
        """Ends the phase before with a line, and begins one with a line."""
        self.done()
        self._name, self._total, self._finished = name, total, 0
        self._began = self._spoke = self._clock()
        self.message(f"{name}{f' (0/{total})' if total else ''} ...")

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Writes a line if the last one is old enough."""
        self._finished += steps
        self._total = self._total if total is None else total
        now = self._clock()
        if self._name and now - self._spoke >= self._interval_s:
            self._spoke = now
            self.message(f"{self._name} {self._count()}, {seconds(now - self._began)}{self._left(now)}")

    def message(self, text: str) -> None:
        """Writes the line."""
        print(text, file=self._stream, flush=True)

    def done(self) -> None:
        """Says how long the phase took."""
        if self._name:
            count = f" {self._count()}" if self._finished else ""
            self.message(f"{self._name}{count} done in {seconds(self._clock() - self._began)}")
        self._name = ""

    def _count(self) -> str:
        return f"{self._finished}/{self._total}" if self._total else str(self._finished)

    def _left(self, now: float) -> str:
        left = time_left_s(now - self._began, self._finished, self._total)
        return "" if left is None else f", about {seconds(left)} left"


class BarProgress:
    """A bar per phase with time left, for terminals.

    Args:
        console: A console on a terminal; best on standard error, so that results can be piped.
    """

    def __init__(self, console: Console) -> None:
        self._bars = Bars(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left", style="dim"),
            TimeRemainingColumn(),
            console=console,
        )
        self._task: TaskID | None = None

    def phase(self, name: str, total: int | None = None) -> None:
        """Fills the bar before and begins one."""
        self._finish()
        self._bars.start()
        self._task = self._bars.add_task(name, total=total)

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Moves the bar."""
        if self._task is not None:
            self._bars.update(self._task, advance=steps, total=total)

    def message(self, text: str) -> None:
        """Prints the line above the bars."""
        self._bars.console.print(Text(text))

    def done(self) -> None:
        """Stops drawing; what was drawn stays."""
        self._finish()
        self._bars.stop()

    def _finish(self) -> None:
        if self._task is not None:
            task = next(task for task in self._bars.tasks if task.id == self._task)
            # work that ends early, by its budget or by luck, is as finished as any
            self._bars.update(self._task, total=task.completed or 1, completed=task.completed or 1)
            self._task = None


def progress_for(console: Console) -> Progress:
    """Bars on a terminal, lines elsewhere."""
    return BarProgress(console) if console.is_terminal else LineProgress(console.file)


def time_left_s(elapsed_s: float, finished: int, total: int | None) -> float | None:
    """Time the rest takes at the pace so far; None if nothing can be said.

    Examples:
        >>> time_left_s(10.0, 5, 20)
        30.0
        >>> time_left_s(10.0, 0, 20) is None
        True
    """
    if total is None or finished <= 0 or finished > total:
        return None
    return elapsed_s / finished * (total - finished)
