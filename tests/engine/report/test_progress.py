from __future__ import annotations

import io

from rich.console import Console

from collage.report.progress import BarProgress, LineProgress, Progress, SilentProgress, progress_for


class Clock:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_lines_come_every_few_seconds_with_the_time_left() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, interval_s=5.0, clock=clock)

    progress.phase("measuring", total=20)
    for _ in range(10):
        clock.now += 1.0
        progress.advance()
    progress.phase("searching")
    clock.now += 0.25
    progress.done()

    assert stream.getvalue().splitlines() == [
        "measuring (0/20) ...",
        "measuring 5/20, 5.0 s, about 15.0 s left",
        "measuring 10/20, 10.0 s, about 10.0 s left",
        "measuring 10/20 done in 10.0 s",
        "searching ...",
        "searching done in 0.2 s",
    ]


def test_a_total_may_become_known_or_grow() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, interval_s=1.0, clock=clock)

    progress.phase("measuring")
    clock.now += 2.0
    progress.advance()
    progress.advance(0, total=4)
    clock.now += 2.0
    progress.advance()

    assert stream.getvalue().splitlines()[1:] == ["measuring 1, 2.0 s", "measuring 2/4, 4.0 s, about 4.0 s left"]


def test_messages_are_lines_of_their_own_and_ending_twice_does_nothing() -> None:
    stream = io.StringIO()
    progress = LineProgress(stream, clock=Clock())

    progress.message("openvino crashed")
    progress.done()
    progress.done()

    assert stream.getvalue() == "openvino crashed\n"


def test_bars_are_for_terminals_and_lines_for_files() -> None:
    assert isinstance(progress_for(Console(file=io.StringIO(), force_terminal=True)), BarProgress)
    assert isinstance(progress_for(Console(file=io.StringIO())), LineProgress)


def test_bars_show_phases_counts_and_messages() -> None:
    stream = io.StringIO()
    progress = BarProgress(Console(file=stream, force_terminal=True, width=100, _environ={}))

    progress.phase("measuring [a]", total=3)
    progress.advance(2, total=4)
    progress.message("a [b] crashed")
    progress.phase("searching")
    progress.done()
    progress.done()

    assert "measuring [a]" in stream.getvalue()
    assert "2/2" in stream.getvalue()
    assert "a [b] crashed" in stream.getvalue()
    assert "searching" in stream.getvalue()


def test_silence_takes_everything() -> None:
    progress: Progress = SilentProgress()

    progress.phase("measuring", total=1)
    progress.advance()
    progress.message("nothing")
    progress.done()
