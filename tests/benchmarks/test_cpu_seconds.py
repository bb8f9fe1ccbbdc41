"""Processor seconds of an optimization: what the benchmark makes of runs, and which figures do not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import cpu_seconds
from benchmarks.cpu_seconds import NAMES, least, lost, markdown, runs
from benchmarks.models import MODELS


def run(tree: str, state: str, cpu_s: float) -> dict[str, Any]:
    phases = {"measure": cpu_s / 2, "search": 0.5}
    return {"tree": tree, "state": state, "turn": 0, "cpu_s": cpu_s, "wall_s": 2.0, "measured": 7, "phases": phases}


def result(*, cold: float, warm: float, before: tuple[float, float] | None = (20.0, 8.0)) -> dict[str, Any]:
    """Runs of one model, each twice, the second time slower."""
    runs = [("now", "cold", cold), ("now", "warm", warm), ("now", "anew", 6.0)]
    if before is not None:
        runs += [("before", "cold", before[0]), ("before", "warm", before[1])]
    return {
        "model": "m",
        "runs": [run(tree, state, slower * cpu_s) for slower in (1, 3) for tree, state, cpu_s in runs],
    }


def test_what_is_run_by_default_is_there() -> None:
    assert set(NAMES) <= set(MODELS)


def test_the_least_of_the_runs_counts() -> None:
    assert least(result(cold=20.0, warm=4.0), "now", "warm", "cpu_s") == 4.0
    assert least(result(cold=20.0, warm=4.0, before=None), "before", "warm", "cpu_s") is None


def test_a_stopped_benchmark_goes_on_with_the_turns_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, bool]] = []

    def counted(tree: Path, model: Path, folder: Path, *, anew: bool) -> dict[str, Any]:
        made.append((tree.name, anew))
        if len(made) == 4:
            raise RuntimeError("stopped in the second run of `now`")
        return {"cpu_s": float(len(made))}

    monkeypatch.setattr(cpu_seconds, "run", counted)
    trees = {"before": Path("old"), "now": Path("new")}
    with pytest.raises(RuntimeError, match="stopped"):
        list(runs(trees, tmp_path / "m.onnx", 1))
    found = list(runs(trees, tmp_path / "m.onnx", 1))

    old, new, anew = ("old", False), ("new", False), ("new", True)
    assert made == [old, old, new, new, new, new, anew]
    assert [(each["tree"], each["state"], each["cpu_s"]) for each in found] == [
        ("before", "cold", 1.0),
        ("before", "warm", 2.0),
        ("now", "cold", 5.0),
        ("now", "warm", 6.0),
        ("now", "anew", 7.0),
    ]
    assert list(runs(trees, tmp_path / "m.onnx", 1)) == found
    assert len(made) == 7

    list(runs({**trees, "before": Path("older")}, tmp_path / "m.onnx", 1))
    assert made[7:] == [("older", False)] * 2


@pytest.mark.parametrize(
    ("cold", "warm", "said"),
    [
        (20.0, 4.0, []),
        (20.5, 4.0, ["m, cold: 20.5 s, before 20.0 s"]),
        (19.0, 4.5, ["m, warm: 4.5 s, before 8.0 s"]),
    ],
)
def test_a_cold_run_takes_no_more_and_a_warm_one_at_most_half(cold: float, warm: float, said: list[str]) -> None:
    assert lost([result(cold=cold, warm=warm)]) == said
    assert lost([result(cold=cold, warm=warm, before=None)]) == []


def page_of(found: dict[str, Any]) -> str:
    environment = {"date": "2026-01-01T00:00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}
    return markdown({"environment": environment, "runs": 2, "models": [found]})


def test_the_page_sets_both_trees_side_by_side() -> None:
    page = page_of(result(cold=19.0, warm=4.5))

    assert "| model | cold, before | cold, now | warm, before | warm, now | anew, now |" in page
    assert "| m | 20.0 (2.0; 7) | 19.0 (2.0; 7) | 8.0 (2.0; 7) | 4.5 (2.0) | 6.0 (2.0; 7) |" in page
    assert "Not held: m, warm: 4.5 s, before 8.0 s." in page
    assert "| model | state | measure | search |" in page
    assert "| m | anew | 3.0 | 0.5 |" in page


def test_the_page_of_one_tree_judges_nothing() -> None:
    page = page_of(result(cold=19.0, warm=4.5, before=None))

    assert "| model | cold, now | warm, now | anew, now |" in page
    assert "held" not in page
    assert "limit" not in page
    assert "\n\n\n" not in page
