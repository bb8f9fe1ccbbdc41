"""The harness: its statistics on known samples, and contenders that sleep, crash, hang or lie."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from benchmarks import harness
from benchmarks.judge import rounds
from benchmarks.judge.contender import Contender, Kind, built_in, parse
from benchmarks.judge.process import ContenderProcess
from benchmarks.judge.report import summarise
from benchmarks.judge.rounds import Outcome, Protocol, compete, shuffled
from benchmarks.judge.statistics import disagreement, latency, median_interval, paired_ratio
from benchmarks.models import MODELS

QUICK = Protocol(threads=1, rounds=3, seconds=0.0, min_runs=3, warmup_s=0.0, settle_s=0.0, deadline_s=3600.0)
ROOT = Path(harness.__file__).resolve().parent.parent

SLEEPS = """
import time
import numpy as np

def setup(model_path, inputs, threads, *, ms="1", scale="1"):
    def call():
        time.sleep(float(ms) / 1e3)
        return [inputs["x"] * float(scale)]
    return call
"""


def contender(folder: Path, name: str, source: str, **options: str) -> Contender:
    file = folder / f"{name}.py"
    file.write_text(source)
    return Contender(name=name, file=file, options=options)


def run(folder: Path, *contenders: Contender, protocol: Protocol = QUICK) -> list[Outcome]:
    inputs = {"x": np.arange(4, dtype=np.float32)}
    return compete(folder / "none.onnx", inputs, ["y"], contenders, protocol)


def mnist(folder: Path) -> Path:
    path = folder / "mnist.onnx"
    onnx.save(MODELS["mnist"].build(), path)
    return path


def test_a_median_over_rounds_has_an_interval_that_covers_it() -> None:
    interval = median_interval([10.0, 11.0, 12.0, 13.0, 1000.0])

    assert interval.value == 12.0
    assert 10.0 <= interval.low < 12.0 < interval.high


def test_the_interval_narrows_with_more_rounds() -> None:
    draws = np.random.default_rng(0).normal(100.0, 5.0, 400)
    few, many = median_interval(list(draws[:10])), median_interval(list(draws))

    assert many.high - many.low < (few.high - few.low) / 2
    assert many.low < 100.0 < many.high


def test_a_latency_is_the_median_of_the_medians_of_rounds() -> None:
    summary = latency([[1.0, 2.0, 9.0], [4.0, 4.0, 4.0], [3.0, 3.0, 3.0]])

    assert (summary.p50_us.value, summary.min_us, summary.n) == (3.0, 1.0, 9)
    assert summary.p90_us == pytest.approx(5.0)


def test_a_ratio_is_paired_so_that_a_slow_round_does_not_count() -> None:
    slow_round = [5.0, 1.0, 1.0, 7.0, 1.0]
    base = [[10.0 * factor] for factor in slow_round]
    other = [[20.0 * factor] for factor in slow_round]

    ratio = paired_ratio(other, base)

    assert (ratio.value, ratio.low, ratio.high) == (2.0, 2.0, 2.0)


def test_disagreement_is_relative_to_the_scale_of_the_output() -> None:
    assert disagreement({"y": np.array([100.0, 1.0])}, {"y": np.array([100.0, 2.0])}) == pytest.approx(0.01)
    assert disagreement({"y": np.array([1, 2])}, {"y": np.array([1, 3])}) == 0.5
    assert disagreement({"y": np.zeros(2)}, {"y": np.zeros(3)}) == float("inf")
    assert disagreement({"y": np.zeros(2)}, {"z": np.zeros(2)}) == float("inf")
    assert disagreement({"y": np.ones(1)}, {"y": np.array([np.nan])}) == float("inf")


@pytest.mark.parametrize(
    ("process_rounds", "enough", "taken"),
    [(None, True, [10]), (None, False, [10, 15]), (2, True, [4]), (2, False, [4, 6, 8, 10, 12, 14, 16])],
)
def test_rounds_go_on_until_the_ratios_are_known_or_patience_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, process_rounds: int | None, enough: bool, taken: list[int]
) -> None:
    asked = []

    def known(outcomes: list[Outcome], half_width: float) -> bool:
        asked.append((len(outcomes[0].rounds_us), half_width))
        return enough

    monkeypatch.setattr(rounds, "known", known)

    (outcome,) = run(
        tmp_path,
        contender(tmp_path, "one", SLEEPS, ms="0"),
        protocol=dataclasses.replace(QUICK, process_rounds=process_rounds, patience=5, half_width=0.25),
    )

    assert len(outcome.rounds_us) == taken[-1]
    assert asked == [(each, 0.25) for each in taken if each < 15]


def test_what_users_call_has_to_be_known_as_well() -> None:
    steady, noisy = [[100.0]] * 4, [[100.0], [90.0], [120.0], [100.0]]
    first, other = (Outcome(contender=built_in()["openvino"], rounds_us=steady, called_us=steady) for _ in range(2))
    assert rounds.known([first, other], 0.02)

    other.called_us = noisy
    assert not rounds.known([first, other], 0.02)
    assert rounds.known([first, other], 0.5)

    other.called_us, other.failed = [], "died"
    assert rounds.known([first, other], 0.02)


@pytest.mark.parametrize(("process_rounds", "least", "most"), [(6, 0.92, 0.98), (None, 0.0, 0.6)])
def test_an_interval_contains_how_processes_of_one_contender_differ(
    process_rounds: int | None, least: float, most: float
) -> None:
    """Two that are equally fast: each process is 1 % faster or slower by chance, each round 2 %."""
    random, rounds_of_all = np.random.default_rng(0), 60

    def times() -> list[list[float]]:
        lives = random.normal(0, 0.01, rounds_of_all // (process_rounds or rounds_of_all))
        each = np.repeat(lives, process_rounds or rounds_of_all) + random.normal(0, 0.02, rounds_of_all)
        return [[float(time)] for time in np.exp(each)]

    found = [paired_ratio(times(), times(), process_rounds) for _ in range(300)]

    assert least <= np.mean([each.low <= 1 <= each.high for each in found]) <= most


STARTS = """
def setup(model_path, inputs, threads, *, who, file):
    with open(file, "a") as stream:
        print(who, file=stream)
    again = open(file).read().split().count(who) > 1
    if who == "late" and again:
        raise ValueError("no more")
    return lambda: [inputs["x"] * (1 + (who == "liar" and again))]
"""


def test_contenders_are_started_anew_until_one_fails(tmp_path: Path) -> None:
    names, file = ("a", "late", "liar"), tmp_path / "starts.txt"
    contenders = [contender(tmp_path, name, STARTS, who=name, file=str(file)) for name in names]

    outcomes = run(tmp_path, *contenders, protocol=dataclasses.replace(QUICK, rounds=9, process_rounds=2))

    starts = file.read_text().split()
    assert {name: starts.count(name) for name in names} == {"a": 5, "late": 2, "liar": 5}
    a, late, liar = outcomes
    assert (late.failed, late.rounds_us) == ("ValueError: no more", [])
    assert len(a.rounds_us) == len(liar.rounds_us) == 10  # the last processes have all of their rounds
    assert (a.max_error, liar.max_error) == (0.0, 1.0)  # only its later processes lie


def test_a_toolchain_behind_the_best_in_each_way_leaves_after_three_processes() -> None:
    def outcome(name: str, bound: float, called: float = 0.0, rounds: int = 6, kind: Kind = "single") -> Outcome:
        each = dataclasses.replace(built_in()["openvino"], name=name, kind=kind)
        rounds_us, called_us = ([[us]] * rounds if us else [] for us in (bound, called))
        return Outcome(contender=each, process_rounds=2, rounds_us=rounds_us, called_us=called_us)

    def left(*race: Outcome) -> list[str]:
        return [each.contender.name for each in rounds.leaving(race, 0.02)]

    race = [outcome("a", 10.0, 10.0), outcome("b", 12.0, 10.2), outcome("c", 12.0, 12.0), outcome("d", 12.0)]
    race.append(outcome("e", 10.5, 10.5))
    plans = [outcome("fast plan", 1.0, 1.0, kind="outside"), outcome("slow plan", 90.0, 90.0, kind="outside")]

    assert left(*race) == ["c", "d"]
    assert left(*race, *plans) == ["c", "d", "e"]  # nothing is compared with what is surely behind
    assert left(outcome("a", 10.0, rounds=4), outcome("b", 20.0, rounds=4)) == []
    race[0].left = True
    assert left(*race) == ["c", "d"]


def test_a_noisy_toolchain_leaves_only_where_plans_are_judged() -> None:
    def outcome(name: str, kind: Kind, *times: float) -> Outcome:
        each = dataclasses.replace(built_in()["openvino"], name=name, kind=kind)
        return Outcome(contender=each, process_rounds=1, rounds_us=[[us] for us in times])

    race = [outcome("best", "single", *[10.0] * 4), outcome("noisy", "single", 19.0, 24.0, 21.0, 26.0)]
    plan = outcome("plan", "outside", *[9.0] * 4)

    assert rounds.leaving(race, 0.02) == []
    assert [each.contender.name for each in rounds.leaving([*race, plan], 0.02)] == ["noisy"]
    assert rounds.known([*race, plan], 0.02)  # that it is surely slower is all that is asked
    assert not rounds.known(race, 0.02)
    plan.failed = "died"
    assert rounds.leaving([*race, plan], 0.02) == []
    assert not rounds.known([*race, plan], 0.02)


@pytest.mark.parametrize(("left", "taken"), [({"b"}, [10, 4, 10]), ({"b", "c"}, [4, 4, 4])])
def test_who_leaves_is_not_started_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: set[str], taken: list[int]
) -> None:
    def leaving(outcomes: list[Outcome], half_width: float) -> list[Outcome]:
        return [each for each in outcomes if each.contender.name in left and len(each.rounds_us) == 4]

    monkeypatch.setattr(rounds, "leaving", leaving)

    outcomes = run(
        tmp_path,
        *(contender(tmp_path, name, SLEEPS, ms="0") for name in "abc"),
        protocol=dataclasses.replace(QUICK, rounds=10, process_rounds=2),
    )

    assert [len(each.rounds_us) for each in outcomes] == taken


def test_a_ratio_is_of_the_rounds_that_both_ran() -> None:
    stayed, gone = (
        Outcome(contender=built_in()["openvino"], process_rounds=2, rounds_us=[[us] for us in times])
        for times in ([1.0, 1.0, 1.0, 1.0, 9.0, 9.0], [2.0, 2.0, 2.0, 2.0])
    )

    assert stayed.ratio_to(gone).value == pytest.approx(0.5)
    assert gone.ratio_to(stayed).value == pytest.approx(2.0)


CALLED = """
import time

def setup(model_path, inputs, threads, *, ms="1", wrong="0"):
    def as_called():
        time.sleep(float(ms) / 1e3)
        return [inputs["x"] + float(wrong)]
    def call():
        pass
    call.outputs = lambda: {"y": inputs["x"]}
    call.as_called = as_called
    return call
"""


def test_runs_as_users_call_them_are_timed_beside_the_bound_ones(tmp_path: Path) -> None:
    outcomes = run(
        tmp_path, contender(tmp_path, "one", CALLED, ms="100"), contender(tmp_path, "bound only", SLEEPS, ms="0")
    )

    one, other = outcomes
    assert [len(samples) for samples in one.called_us] == [3, 3, 3]
    assert [len(samples) for samples in one.rounds_us] == [3, 3, 3]
    assert min(map(min, one.called_us)) >= 100e3
    assert other.called_us == []


def test_runs_as_users_call_them_are_compared_with_the_toolchain_that_is_best_so(tmp_path: Path) -> None:
    def outcome(name: str, bound: float, called: float) -> Outcome:
        kind: Kind = "outside" if name == "plan" else "single"
        each = Contender(name=name, file=tmp_path / "x.py", kind=kind)
        return Outcome(contender=each, rounds_us=[[bound]] * 3, called_us=[[called]] * 3, max_error=0.0)

    summary = summarise({}, [outcome("a", 10.0, 40.0), outcome("b", 20.0, 20.0), outcome("plan", 5.0, 30.0)])

    plan = summary["contenders"][2]
    assert (summary["best_single"], summary["best_single_as_called"]) == ("a", "b")
    assert plan["ratio_vs_best_single"]["ratio"] == 0.5
    assert plan["as_called"]["ratio_vs_best_single"] == {"ratio": 1.5, "ci95": [1.5, 1.5]}
    assert plan["as_called"]["latency_ms"]["p50"] == 0.03


def test_results_of_runs_as_users_call_them_that_differ_are_seen(tmp_path: Path) -> None:
    (outcome,) = run(tmp_path, contender(tmp_path, "one", CALLED, ms="0", wrong="1.5"))

    assert outcome.max_error == pytest.approx(0.5)


def test_every_round_has_all_contenders_and_nobody_always_follows_the_same() -> None:
    orders = [shuffled(4, turn) for turn in range(40)]

    assert all(sorted(order) == [0, 1, 2, 3] for order in orders)
    assert {order[order.index(0) - 1] for order in orders if order[0] != 0} == {1, 2, 3}
    assert {shuffled(4, f"start {done}")[0] for done in range(0, 60, 6)} == {0, 1, 2, 3}


def test_a_contender_that_sleeps_is_timed_as_long_as_it_sleeps(tmp_path: Path) -> None:
    short, long = run(
        tmp_path,
        contender(tmp_path, "short", SLEEPS, ms="1"),
        contender(tmp_path, "long", SLEEPS, ms="200"),
    )

    assert [len(samples) for samples in short.rounds_us] == [3, 3, 3]
    assert 1e3 <= min(map(min, short.rounds_us)) < 200e3 <= min(map(min, long.rounds_us))


def test_outputs_that_differ_are_seen(tmp_path: Path) -> None:
    _, liar = run(tmp_path, contender(tmp_path, "right", SLEEPS), contender(tmp_path, "liar", SLEEPS, scale="1.5"))

    assert liar.max_error == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise ValueError('no such operator')", "ValueError: no such operator"),
        ("import os; os.abort()", "was killed by signal 6"),
        ("import os; print('bye', flush=True); os._exit(3)", "exited with status 3: bye"),
        ("import time; time.sleep(3600)", "no answer within 0.5 s"),
    ],
)
def test_a_failing_contender_costs_itself_only(
    tmp_path: Path, body: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = ContenderProcess.ask

    def asked(process: ContenderProcess, command: dict[str, Any], deadline_s: float) -> dict[str, Any]:
        hangs = "sleep" in body and "bad.py" in json.dumps(command)
        return ask(process, command, 0.5 if hangs else deadline_s)

    monkeypatch.setattr(ContenderProcess, "ask", asked)
    bad = contender(tmp_path, "bad", f"def setup(model_path, inputs, threads):\n    {body}\n")

    failed, good = run(tmp_path, bad, contender(tmp_path, "good", SLEEPS))

    assert failed.failed is not None
    assert reason in failed.failed
    assert good.rounds_us


def test_a_contender_that_dies_in_a_later_round_has_no_times(tmp_path: Path) -> None:
    dies = """
import os

def setup(model_path, inputs, threads):
    runs = []
    def call():
        runs.append(0)
        if len(runs) > 5:
            os._exit(7)
        return [inputs["x"]]
    return call
"""
    (outcome,) = run(tmp_path, contender(tmp_path, "dies", dies))

    assert outcome.rounds_us == []
    assert outcome.failed == "the process exited with status 7"


def test_what_a_contender_prints_does_not_disturb_it(tmp_path: Path) -> None:
    noisy = SLEEPS.replace("    def call():", "    print('loading', flush=True)\n    def call():")

    (outcome,) = run(tmp_path, contender(tmp_path, "noisy", noisy))

    assert outcome.failed is None


def test_a_contender_may_load_another_path_than_the_judged_model(tmp_path: Path) -> None:
    plan = Contender(name="plan", file=tmp_path / "x.py", options={"model": "plans/{name}.collage", "depth": "2"})

    assert plan.path_for(Path("models/resnet50.onnx")) == Path("plans/resnet50.collage")
    assert plan.setup_options() == {"depth": "2"}


@pytest.mark.parametrize("text", ["plan", "plan=missing.py", "=a.py"])
def test_a_contender_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="contender"):
        parse(text)


def test_misuse_is_one_message_and_exit_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert harness.main([str(tmp_path / "missing.onnx")]) == 2
    assert "there is no file" in capsys.readouterr().err
    assert harness.main([str(mnist(tmp_path)), "--only", "tensorrt"]) == 2
    assert "no built-in contender 'tensorrt'" in capsys.readouterr().err


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The report on MNIST of all built-in contenders and a hand-made plan."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    folder = tmp_path_factory.mktemp("harness")
    hand_made = ROOT / "benchmarks" / "contenders" / "hand_made.py"
    status = harness.main(
        [
            str(mnist(folder)),
            *("--threads", "1", "--rounds", "2", "--seconds", "0.01"),
            *("--contender", f"plan={hand_made}:plan=openvino>reshape_0>onnxruntime-nospin"),
            *("--json", str(folder / "report.json")),
        ]
    )
    assert status == 0
    content: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return content


def test_the_report_says_what_was_measured_on_what_and_how(report: dict[str, Any]) -> None:
    assert report["schema_version"] == 1
    assert {"machine", "system", "cpu", "vectors", "cores"} <= report["host"].keys()
    assert {"python", "numpy", "onnxruntime", "openvino"} <= report["versions"].keys()
    assert (report["threads"], report["rounds"]) == (1, 2)
    assert report["date"].endswith("+00:00")


def test_the_report_compares_each_contender_with_the_best_single_toolchain(report: dict[str, Any]) -> None:
    (result,) = report["models"]
    rows = {row["name"]: row for row in result["contenders"]}

    assert result["model"]["name"] == "mnist"
    assert set(rows) == {*built_in(), "plan"}
    assert rows[result["best_single"]]["kind"] == "single"
    assert rows[result["best_single"]]["ratio_vs_best_single"] == {"ratio": 1.0, "ci95": [1.0, 1.0]}
    for row in rows.values():
        if "failed" in row:
            assert row["name"] == "openvino-bf16"
            continue
        assert row["latency_ms"].keys() == {"p50", "p90", "p99", "mean", "min", "n", "ci95"}
        assert ("as_called" in row) == (row["kind"] == "single" or row["name"] == "openvino-bf16")
        assert row["comparable"]
        assert row["max_error"] < (0.05 if row["name"] in {"openvino-default", "openvino-bf16"} else 1e-5)


def test_the_harness_imports_nothing_of_collage_and_runs_as_a_file() -> None:
    code = "import sys, benchmarks.harness; print([m for m in sys.modules if m.startswith('collage')])"
    modules = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert modules.stdout.strip() == "[]"

    usage = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "harness.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--contender" in usage.stdout
