from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from collage.measure.clocks.load_wait import LoadWait
from collage.measure.contenders.interleaved import Contender, ContenderProcess, Rounds, interleaved
from collage.measure.contenders.repeating import Repeating
from collage.measure.driver import memory
from collage.measure.wire.messages import Burst, Prepared
from collage.measure.wire.outcomes import Failed, Stage
from collage_core.contract import Json

HERE = str(Path(__file__).parent)


def contender(name: str, call: str = "sleeper", **arguments: Json) -> Contender:
    return Contender(name=name, call=f"contending:{call}", arguments=arguments, paths=(HERE,))


def test_contenders_take_turns_and_failures_cost_only_themselves() -> None:
    bursts: list[tuple[int, int]] = []

    timed = interleaved(
        [
            contender("fast", seconds=0.001),
            contender("slow", seconds=0.2),
            contender("absent", call="nonsense"),
            contender("broken", call="broken"),
            contender("dies", seconds=0.001, dies_after=5),
        ],
        rounds=3,
        burst_s=0.03,
        min_runs=2,
        warmup_s=0.0,
        progress=lambda done, total: bursts.append((done, total)),
    )

    fast, slow = timed["fast"], timed["slow"]
    assert not isinstance(fast, Failed)
    assert not isinstance(slow, Failed)
    assert len(fast) == len(slow) == 3
    assert min(map(min, fast)) < 200_000 <= min(map(min, slow))
    assert all(len(samples) >= 2 for samples in slow)
    assert bursts[-1] == (15, 15)
    for name, stage, reason in [
        ("absent", Stage.LOAD, "nonsense"),
        ("broken", Stage.LOAD, "RuntimeError: no such model"),
        ("dies", Stage.RUN, "SIGABRT"),
    ]:
        failed = timed[name]
        assert isinstance(failed, Failed)
        assert failed.stage is stage
        assert reason in failed.reason


def test_who_leaves_takes_no_further_turn() -> None:
    counts: list[dict[str, int]] = []

    def leaving(so_far: Mapping[str, Rounds]) -> set[str]:
        counts.append({name: len(rounds) for name, rounds in so_far.items()})
        return {"slow"} if len(counts) == 2 else set()

    timed = interleaved(
        [contender("fast", seconds=0.0), contender("slow", seconds=0.01), contender("broken", call="broken")],
        rounds=4,
        burst_s=0.0,
        warmup_s=0.0,
        leaving=leaving,
    )

    assert {name: len(rounds) for name, rounds in timed.items() if not isinstance(rounds, Failed)} == {
        "fast": 4,
        "slow": 2,
    }
    assert counts == [{"fast": n, "slow": min(n, 2)} for n in range(1, 5)]


def test_nobody_is_always_started_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made, started = ContenderProcess.__init__, []

    def make(process: ContenderProcess, contender: Contender) -> None:
        started.append(contender.name)
        made(process, contender)

    monkeypatch.setattr(ContenderProcess, "__init__", make)
    both = [contender(name, call="broken") for name in "ab"]

    for first_round in range(0, 60, 12):
        assert list(interleaved(both, rounds=1, burst_s=0.0, first_round=first_round)) == ["a", "b"]

    assert {*started[::2]} == {"a", "b"}


def test_steps_are_timed_one_after_another_when_asked_for(tmp_path: Path) -> None:
    order = tmp_path / "order"
    both = [contender("plan", call="in_steps", order=str(order)), contender("whole", seconds=0.0)]
    bursts: list[tuple[str, Burst]] = []

    interleaved(both, rounds=1, burst_s=0.01)
    assert not order.exists()
    interleaved(both, rounds=2, burst_s=0.01, in_parts=True, on_burst=lambda name, burst: bursts.append((name, burst)))

    parts = [burst.parts_us for name, burst in bursts if name == "plan"]
    assert len(parts) == 2
    assert all(list(each) == ["short", "long"] and each["long"] >= 20_000 for each in parts)
    assert all(not burst.parts_us for name, burst in bursts if name == "whole")
    steps = order.read_text(encoding="utf-8")
    assert steps == "sl" * (len(steps) // 2)


def test_runs_as_users_call_them_are_timed_when_asked_for(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    both = [contender("session", call="session_like", seconds=0.05, kept=str(kept)), contender("bound", seconds=0.0)]
    bursts: list[tuple[str, Burst]] = []

    interleaved(both, rounds=1, burst_s=0.01)
    assert not kept.exists()
    timed = interleaved(
        both, rounds=3, burst_s=0.01, as_called=True, on_burst=lambda name, burst: bursts.append((name, burst))
    )
    called = [(name, burst.called_us) for name, burst in bursts if burst.called_us]

    assert [len(timed[each.name]) for each in both] == [3, 3]  # type: ignore[arg-type]
    assert [name for name, _ in called] == ["session"] * 3
    assert all(len(samples) >= 2 and min(samples) >= 50_000 for _, samples in called)
    assert kept.read_text() == "2"  # the last result is held while the next is made


def test_a_calibration_stands_beside_a_turn_when_asked_for() -> None:
    bursts: list[Burst] = []

    for threads in (0, 2):
        interleaved(
            [contender("it", seconds=0.0)],
            rounds=2,
            burst_s=0.01,
            calibration_threads=threads,
            on_burst=lambda name, burst: bursts.append(burst),
        )

    assert [burst.calibration_us > 0 for burst in bursts] == [False, False, True, True]
    assert not any(burst.called_us for burst in bursts)


def test_what_takes_turns_again_says_which_count() -> None:
    turns: list[Burst | Failed] = []

    class Twice(Repeating):
        def __call__(self, turn: Callable[[], Burst | Failed]) -> Burst | Failed:
            turns.extend([turn(), turn()])
            return turns[-1]

    bursts: list[Burst | Failed] = []
    timed = interleaved(
        [contender("it", seconds=0.0)],
        rounds=2,
        burst_s=0.01,
        repeating=Twice(LoadWait(1, 0.0), limit_s=0.0),
        on_burst=lambda name, burst: bursts.append(burst),
    )

    assert len(turns) == 4
    assert bursts == turns[1::2]
    assert timed["it"] == tuple(burst.samples_us for burst in bursts if isinstance(burst, Burst))


def test_a_contender_that_hangs_costs_itself_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare, loaded = ContenderProcess.prepare, tmp_path / "loaded"

    def prepared(process: ContenderProcess, deadline_s: float, *, at_a_time: int = 1) -> Prepared | Failed:
        answer = prepare(process, deadline_s, at_a_time=at_a_time)
        if process.contender.name == "fast":  # they load side by side, and the time limits of both pass at once
            loaded.touch()
        return answer

    monkeypatch.setattr(ContenderProcess, "prepare", prepared)

    both = [contender("fast", seconds=0.001), contender("stuck", call="stuck", after=str(loaded))]
    timed = interleaved(both, rounds=1, burst_s=0.01)

    stuck = timed["stuck"]
    assert isinstance(stuck, Failed)
    assert stuck.stage is Stage.LOAD
    assert "deadline" in stuck.reason
    assert not isinstance(timed["fast"], Failed)


def test_contenders_need_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="different names"):
        interleaved([contender("a"), contender("a")], rounds=1, burst_s=0.1)


def test_a_contender_that_is_done_leaves_no_temporary_files(tmp_path: Path) -> None:
    note = tmp_path / "note"

    interleaved([contender("it", call="littering", note=str(note))], rounds=1, burst_s=0.01)

    assert note.read_text(encoding="utf-8")
    assert not Path(note.read_text(encoding="utf-8")).exists()


@pytest.mark.guards(
    "contenders of a race take too much memory together, or one cannot be started",
    "those that load together share what is free; who cannot be started has a reason",
    area="toolchains",
)
def test_contenders_that_load_together_share_the_memory_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limit_bytes", lambda: 240 << 20)

    timed = interleaved(
        [contender("large", call="hoarding", mib=200, load_s=3600), contender("small", call="hoarding", mib=20)],
        rounds=1,
        burst_s=0.01,
    )

    large = timed["large"]
    assert isinstance(large, Failed)
    assert large.reason.startswith("memory: it grew to ")
    assert not isinstance(timed["small"], Failed)


@pytest.mark.guards("contenders of a race take too much memory together, or one cannot be started")
def test_a_contender_that_cannot_be_started_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    failed = interleaved([contender("it")], rounds=1, burst_s=0.01)["it"]

    assert isinstance(failed, Failed)
    assert failed.stage is Stage.LOAD
    assert failed.reason.startswith("start: ")
