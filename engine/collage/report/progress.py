"""Show the progress of long work: current step, share done, time left."""

from __future__ import annotations

import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Protocol

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Task, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text

from collage.report.figures import seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One of the large steps of long work.

    Attributes:
        name: What is done.
        number: Which of them, from 1.
        count: How many there are.
        before: Share of the work's time that the stages before it usually take.
        share: Share of the work's time that it usually takes.
    """

    name: str
    number: int
    count: int
    before: float
    share: float

    def __str__(self) -> str:
        return f"{self.number}/{self.count} {self.name}"


def stages_of(shares: Mapping[str, float]) -> dict[str, Stage]:
    """Return stages by name, in order.

    Args:
        shares: Share of the time that each usually takes, by name.

    Examples:
        >>> str(stages_of({"measuring": 0.6, "racing": 0.4})["racing"])
        '2/2 racing'
    """
    before, found = 0.0, {}
    for number, (name, share) in enumerate(shares.items(), start=1):
        found[name] = Stage(name=name, number=number, count=len(shares), before=before, share=share)
        before += share
    return found


class Progress(Protocol):
    """Receives progress updates of long work, which is a sequence of phases, each a sequence of steps.

    Work of many phases has stages; a phase is part of the stage that began last.
    """

    def stage(self, stage: Stage) -> None:
        """Begin a stage and end the previous one."""

    def standing(self, text: str) -> None:
        """Say what is known of the result so far, in place of what was said before."""

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

    def stage(self, stage: Stage) -> None:
        """Ignore the stage."""

    def standing(self, text: str) -> None:
        """Ignore the text."""

    def phase(self, name: str, total: int | None = None) -> None:
        """Ignore the phase."""

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Ignore the phase."""

    def message(self, text: str) -> None:
        """Ignore the phase."""

    def done(self) -> None:
        """Ignore the phase."""


class LineProgress:
    """Writes lines, for logs and pipes: one for each stage.

    Of work without stages it writes a line when a phase begins, one every few seconds, and one when it ends.

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
        self._first_stage_began: float | None = None
        self._standing = ""
        self._stage_line = ""

    def stage(self, stage: Stage) -> None:
        """Name the stage in a line, with the time since the work began and what is known so far."""
        self._end_phase()
        self._write_stage()
        line = str(stage)
        if self._first_stage_began is None:
            self._first_stage_began = self._clock()
        else:
            known = f"; {self._standing}" if self._standing else ""
            line = f"{stage} ({seconds(self._clock() - self._first_stage_began)}{known})"
        self._stage_line, self._standing = line, ""

    def standing(self, text: str) -> None:
        """Keep the text for the next stage's line."""
        self._standing = text

    def phase(self, name: str, total: int | None = None) -> None:
        """Write a line that ends the previous phase, and one that begins the new phase."""
        if self._first_stage_began is not None:
            self._write_stage()
            return
        self._end_phase()
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
        self._write_stage()
        print(text, file=self._stream, flush=True)

    def done(self) -> None:
        """Write how long the phase took, and forget the stages."""
        self._end_phase()
        self._first_stage_began = None
        self._standing = self._stage_line = ""

    def _end_phase(self) -> None:
        if self._name:
            count = f" {self._count()}" if self._finished else ""
            self.message(f"{self._name}{count} done in {seconds(self._clock() - self._began)}")
        self._name = ""

    def _write_stage(self) -> None:
        """Write the line of the stage, once: not before something is done in it, because an error may come first."""
        line, self._stage_line = self._stage_line, ""
        if line:
            self.message(line)

    def _count(self) -> str:
        return f"{self._finished}/{self._total}" if self._total else str(self._finished)

    def _left(self, now: float) -> str:
        left = time_left_s(now - self._began, self._finished, self._total)
        return "" if left is None else f", about {seconds(left)} left"


class _Bars(Bars):
    """Bars with a line below them.

    Attributes:
        below: The line; nothing is drawn if it is empty.
    """

    below = ""

    def get_renderables(self) -> Iterable[RenderableType]:
        """Yield the bars, and the line."""
        yield from super().get_renderables()
        if self.below:
            yield Text(self.below, style="dim", overflow="ellipsis", no_wrap=True)


class _TimeLeft(TimeRemainingColumn):
    """Time left: of a phase by its steps; of all work by the usual shares of its stages, one of which began last."""

    def render(self, task: Task) -> Text:
        """Return the time, rounded to seconds; dashes if nothing can be said."""
        began_s = task.fields.get("began_s")
        if began_s is None:
            return super().render(task)
        if not began_s or not task.completed:
            return Text("-:--:--", style="progress.remaining")
        left_s = max(0.0, began_s / task.completed - (task.elapsed or 0.0))
        return Text(str(datetime.timedelta(seconds=round(left_s))), style="progress.remaining")


class BarProgress:
    """Shows bars with the time left, for terminals: one for all of the work, one for the current phase.

    Of work without stages it shows a bar per phase.

    Args:
        console: A console on a terminal; preferably on standard error, so that results can be piped.
        clock: Monotonic clock, in seconds.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        name = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        self._bars = _Bars(
            TextColumn("{task.description}", markup=False, table_column=name),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("left", style="dim"),
            _TimeLeft(),
            console=console,
            expand=True,
            get_time=clock,
        )
        self._task: TaskID | None = None
        self._whole: TaskID | None = None
        self._stage: Stage | None = None

    def stage(self, stage: Stage) -> None:
        """Advance the bar of all work to where the stage begins."""
        self._finish()
        self._bars.start()
        if self._stage is None or self._whole is None:
            self._whole = self._bars.add_task(str(stage), total=1.0, count="", began_s=0.0)
        self._stage = stage
        self._at(stage.before, str(stage))

    def standing(self, text: str) -> None:
        """Show the text below the bars."""
        self._bars.below = text
        self._bars.refresh()

    def phase(self, name: str, total: int | None = None) -> None:
        """Complete the previous phase's bar and begin a new one."""
        self._finish()
        self._bars.start()
        self._task = self._bars.add_task(f"  {name}" if self._stage else name, total=total, count=_counted(0, total))

    def advance(self, steps: int = 1, *, total: int | None = None) -> None:
        """Advance the bar."""
        if self._task is None:
            return
        self._bars.update(self._task, advance=steps, total=total)
        task = self._current()
        self._bars.update(
            self._task, count=_counted(int(task.completed), None if task.total is None else int(task.total))
        )

    def message(self, text: str) -> None:
        """Print the line above the bars."""
        self._bars.console.print(Text(text))

    def done(self) -> None:
        """Stop drawing; bars already drawn stay on screen."""
        self._finish()
        if self._whole is not None:
            self._at(1.0)
            self._whole = self._stage = None
        self._bars.below = ""
        self._bars.stop()

    def _at(self, share: float, description: str | None = None) -> None:
        """Move the bar of all work forward, never back: a search that begins again takes a part anew."""
        assert self._whole is not None
        whole = next(task for task in self._bars.tasks if task.id == self._whole)
        reached = max(whole.completed, share)
        self._bars.update(
            self._whole,
            completed=reached,
            count=f"{100 * reached:.0f} %",
            description=description or whole.description,
            began_s=whole.elapsed or 0.0,
        )
        self._bars.refresh()

    def _current(self) -> Task:
        return next(task for task in self._bars.tasks if task.id == self._task)

    def _finish(self) -> None:
        if self._task is None:
            return
        if self._stage is not None:  # one bar a phase would fill the screen
            self._bars.remove_task(self._task)
        else:
            task = self._current()
            # work that ends early, by its budget or by luck, is as finished as any
            completed = task.completed or 1
            self._bars.update(
                self._task, total=completed, completed=completed, count=_counted(int(completed), int(completed))
            )
        self._task = None


def _counted(finished: int, total: int | None) -> str:
    return f"{finished}/{'?' if total is None else total}"


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
