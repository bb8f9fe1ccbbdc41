"""Show the progress of long work: current step, share done, time left."""

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
    """Receives progress updates of long work, which is a sequence of phases, each a sequence of steps."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Begin a phase and end the previous one.

        Args:
            name: Name of the phase, e.g. `"measuring"`.
            total: Number of steps; None if unknown.
        """

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Report finished steps of the current phase.

        Args:
            steps: Steps finished since the last call; 0 to change the total only.
            total: Current estimate of the phase's number of steps; None if unchanged.
        """

    def message(self, text: str) -> None:
        """Show one permanent line, for events such as a toolchain crash."""

    def done(self) -> None:
        """End the last phase and release the screen; may be called more than once."""


class SilentProgress:
    """Shows nothing."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Ignore the phase."""

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Ignore the phase."""

    def message(self, text: str) -> None:
        """Ignore the phase."""

    def done(self) -> None:
        """Ignore the phase."""


class LineProgress:
    """Writes a line when a phase begins, one every few seconds, and one when it ends: for logs and pipes.

    Args:
        stream: Receives the lines.
        interval_s: Least time between two lines about the same phase.
        clock: Monotonic clock, in seconds.
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
        """Write a line that ends the previous phase, and one that begins the new phase."""
        self.done()
        self._name, self._total, self._finished = name, total, 0
        self._began = self._spoke = self._clock()
        self.message(f"{name}{f' (0/{total})' if total else ''} ...")

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Write a line if the last one is old enough."""
        self._finished += steps
        self._total = self._total if total is None else total
        now = self._clock()
        if self._name and now - self._spoke >= self._interval_s:
            self._spoke = now
            self.message(f"{self._name} {self._count()}, {seconds(now - self._began)}{self._left(now)}")

    def message(self, text: str) -> None:
        """Write the line."""
        print(text, file=self._stream, flush=True)

    def done(self) -> None:
        """Write how long the phase took."""
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
    """Shows a bar per phase with the time left, for terminals.

    Args:
        console: A console on a terminal; preferably on standard error, so that results can be piped.
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
        """Complete the previous phase's bar and begin a new one."""
        self._finish()
        self._bars.start()
        self._task = self._bars.add_task(name, total=total)

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Advance the bar."""
        if self._task is not None:
            self._bars.update(self._task, advance=steps, total=total)

    def message(self, text: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(Text(text))

    def done(self) -> None:
        """Stop drawing; bars already drawn stay on screen."""
        self._finish()
        self._bars.stop()

    def _finish(self) -> None:
        if self._task is not None:
            task = next(task for task in self._bars.tasks if task.id == self._task)
            # work that ends early, by its budget or by luck, is as finished as any
            self._bars.update(self._task, total=task.completed or 1, completed=task.completed or 1)
            self._task = None


def progress_for(console: Console) -> Progress:
    """Return a progress display: bars on a terminal and in a notebook, lines elsewhere."""
    return BarProgress(console) if console.is_terminal or console.is_jupyter else LineProgress(console.file)


def progress_wanted(progress: Progress | bool | None) -> Progress:
    """Return the progress display that Python code asks for.

    Args:
        progress: A display of the caller's; whether there is to be one on standard error; or None for one on a terminal
            and in a notebook, and none elsewhere.
    """
    if progress is not None and not isinstance(progress, bool):
        return progress
    console = Console(stderr=True, markup=False, highlight=False, emoji=False)
    if progress is None:
        progress = console.is_terminal or console.is_jupyter
    return progress_for(console) if progress else SilentProgress()


def time_left_s(elapsed_s: float, finished: int, total: int | None) -> float | None:
    """Estimate the remaining time at the current pace; None if no estimate is possible.

    Examples:
        >>> time_left_s(10.0, 5, 20)
        30.0
        >>> time_left_s(10.0, 0, 20) is None
        True
    """
    if total is None or finished <= 0 or finished > total:
        return None
    return elapsed_s / finished * (total - finished)
