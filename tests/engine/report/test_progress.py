from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from collage.report.progress import BarProgress, LineProgress, Progress, SilentProgress, progress_for, stages_of


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


STAGES = stages_of({"preparing": 0.1, "measuring": 0.6, "racing": 0.3})


def test_stages_add_up() -> None:
    assert [(str(each), each.before) for each in STAGES.values()] == [
        ("1/3 preparing", 0.0),
        ("2/3 measuring", 0.1),
        ("3/3 racing", pytest.approx(0.7)),
    ]


def test_a_log_has_one_line_for_each_stage_with_what_is_known() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, interval_s=1.0, clock=clock)

    progress.stage(STAGES["preparing"])
    progress.phase("reading", 2)
    clock.now += 2.0
    progress.advance()
    progress.stage(STAGES["measuring"])
    progress.standing("best plan so far 3.000 ms, predicted")
    progress.message("openvino crashed")
    clock.now += 60.0
    progress.stage(STAGES["racing"])
    progress.phase("first rounds", 4)
    progress.done()

    assert stream.getvalue().splitlines() == [
        "1/3 preparing",
        "2/3 measuring (2.0 s)",
        "openvino crashed",
        "3/3 racing (1:02 min; best plan so far 3.000 ms, predicted)",
    ]


def test_a_stage_in_which_nothing_happened_leaves_no_line() -> None:
    """An input that is refused gets its one message."""
    stream = io.StringIO()
    progress = LineProgress(stream, clock=Clock())

    progress.stage(STAGES["preparing"])
    progress.done()

    assert stream.getvalue() == ""


def test_after_stages_phases_are_told_again_and_another_work_begins_anew() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = LineProgress(stream, clock=clock)

    for _ in range(2):
        progress.stage(STAGES["preparing"])
        progress.phase("reading")
        clock.now += 3.0
        progress.standing("the best of the first work")
        progress.done()
    progress.phase("timing the plans", 2)
    progress.done()

    assert stream.getvalue().splitlines() == [
        "1/3 preparing",
        "1/3 preparing",
        "timing the plans (0/2) ...",
        "timing the plans done in 0.0 s",
    ]


def bars(width: int) -> tuple[BarProgress, io.StringIO]:
    stream = io.StringIO()
    return BarProgress(Console(file=stream, force_terminal=True, width=width, _environ={})), stream


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_the_stage_the_phase_and_what_is_known_in_its_width(width: int) -> None:
    progress, stream = bars(width)

    progress.stage(STAGES["preparing"])
    progress.stage(STAGES["measuring"])
    progress.phase("measuring what nothing covers yet, one by one", total=12)
    progress.advance(3)
    progress.standing("best plan so far 42.10 ms, predicted; best single toolchain openvino, 61.20 ms")
    progress.message("a line")
    progress.stage(STAGES["racing"])
    progress.done()

    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert max(len(line) for line in re.split(r"[\r\n]+", text)) <= width
    assert "2/3 measuring" in text
    assert "3/12" in text
    assert "best plan so far 42.10 ms" in text
    assert "100 %" in text


def test_the_time_left_follows_from_the_usual_shares() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = BarProgress(Console(file=stream, force_terminal=True, width=100, _environ={}), clock)

    progress.stage(STAGES["preparing"])
    clock.now += 10.0
    progress.stage(STAGES["measuring"])
    first = stream.getvalue()
    clock.now += 25.0
    progress.standing("a tenth took ten seconds")
    progress.done()

    assert "0:01:30" in first
    assert "0:01:05" in stream.getvalue()[len(first) :]


def test_the_bar_of_all_work_never_goes_back() -> None:
    progress, stream = bars(100)

    progress.stage(STAGES["racing"])
    progress.stage(STAGES["measuring"])
    progress.message("searching again")
    progress.done()

    text = stream.getvalue()
    assert "70 %" in text
    assert "10 %" not in text


def test_silence_takes_everything() -> None:
    progress: Progress = SilentProgress()

    progress.stage(STAGES["racing"])
    progress.standing("nothing")

    progress.phase("measuring", total=1)
    progress.advance()
    progress.message("nothing")
    progress.done()
