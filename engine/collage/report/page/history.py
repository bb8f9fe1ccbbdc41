"""Draw the search over time: the best plan so far as steps, single toolchains as lines."""

from __future__ import annotations

import dataclasses

from collage.report import figures
from collage.report.facts.record import Record

WIDTH, HEIGHT = 720.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 16.0, 40.0
_TICKS = 5


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A mark on an axis: where, and what it says."""

    at: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The line of a single toolchain.

    Attributes:
        name: The contender.
        at: Height of the line in the picture.
        text: Its predicted time.
    """

    name: str
    at: float
    text: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class HistoryChart:
    """The chart's geometry, in pixels of a picture of `WIDTH` by `HEIGHT`, and its summary.

    Attributes:
        path: The steps, as the `d` of an SVG path.
        points: Places of the changes, each with what it says.
        lines: Single toolchains, the fastest first.
        seconds: Marks on the horizontal axis.
        milliseconds: Marks on the vertical axis.
        summary: What the chart shows, in a sentence.
    """

    path: str
    points: tuple[tuple[float, float, str], ...]
    lines: tuple[Line, ...]
    seconds: tuple[Tick, ...]
    milliseconds: tuple[Tick, ...]
    summary: str

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the picture."""
        return WIDTH, HEIGHT

    @property
    def frame(self) -> tuple[float, float, float, float]:
        """Left, right, top and bottom of the area in which is drawn."""
        return _LEFT, WIDTH - _RIGHT, _TOP, HEIGHT - _BOTTOM


def history_chart(record: Record) -> HistoryChart | None:
    """Return the search of a record as a chart; None if it kept no history.

    Single toolchains are drawn as they were predicted when the search ended: before they were timed in place.
    """
    history = record.search.history
    if not history:
        return None
    alone = {
        each.name: value
        for each in record.comparison.contenders
        if each.kind == "single" and (value := each.alone_ms or each.predicted_ms)
    }
    singles = sorted(alone.items(), key=lambda item: (item[1], item[0]))
    total_s = 1.05 * history[-1].seconds or 1.0
    highest = max(each.predicted_ms for each in history)
    fastest = [value for _, value in singles[:1]]
    high = 1.05 * max([highest, *fastest])
    low = 0.95 * min([*(each.predicted_ms for each in history), *fastest])

    def across(seconds: float) -> float:
        return round(_LEFT + (WIDTH - _LEFT - _RIGHT) * min(seconds, total_s) / total_s, 1)

    def up(value_ms: float) -> float:
        return round(HEIGHT - _BOTTOM - (HEIGHT - _BOTTOM - _TOP) * (value_ms - low) / ((high - low) or 1.0), 1)

    steps = [f"M{across(history[0].seconds)},{up(history[0].predicted_ms)}"]
    steps += [f"H{across(each.seconds)}V{up(each.predicted_ms)}" for each in history[1:]]
    steps.append(f"H{across(total_s)}")
    first, last = history[0], history[-1]
    return HistoryChart(
        path="".join(steps),
        points=tuple(
            (
                across(each.seconds),
                up(each.predicted_ms),
                f"{figures.milliseconds(each.predicted_ms)} ms after {figures.seconds(each.seconds)}, "
                f"{figures.counted(each.candidates, 'candidate')} known",
            )
            for each in history
        ),
        lines=tuple(
            Line(name=name, at=up(value), text=f"{figures.milliseconds(value)} ms")
            for name, value in singles
            if low <= value <= high
        ),
        seconds=tuple(
            Tick(at=across(total_s * step / _TICKS), text=figures.seconds(total_s * step / _TICKS))
            for step in range(_TICKS + 1)
        ),
        milliseconds=tuple(
            Tick(at=up(value), text=figures.milliseconds(value))
            for value in (low + (high - low) * step / _TICKS for step in range(_TICKS + 1))
        ),
        summary=f"The best plan known was predicted to take {figures.milliseconds(first.predicted_ms)} ms after "
        f"{figures.seconds(first.seconds)}, and {figures.milliseconds(last.predicted_ms)} ms in the end; it changed "
        f"{figures.counted(len(history) - 1, 'time')}.",
    )
