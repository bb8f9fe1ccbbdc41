"""Rounds of races at one speed: which plans of a database count, and what errors each way has."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from benchmarks import race_normalising
from benchmarks.race_normalising import OWN, WAYS, errors, plans


def database(folder: Path, race: dict[str, Any], name: str = "net") -> Path:
    """A tuning database with one race, as `benchmarks.suite` names it."""
    path = folder / f"{name}.optimize.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE document (kind TEXT, name TEXT, body TEXT)")
        connection.execute("INSERT INTO document VALUES ('race', 'r', ?)", [json.dumps(race)])
    connection.close()
    return path


def slowed(factors: list[float], kernels: tuple[float, ...] = (60.0, 40.0), timed: int = 2) -> dict[str, Any]:
    """A race of one mix, each round of which is slower by a factor, as the calibration kernel is."""
    return {
        "timed": {"mix": [[sum(kernels) * factor] for factor in factors], "single": [[90.0]] * len(factors)},
        "calibrations_us": {"mix": [40.0 * factor for factor in factors], "single": [40.0] * len(factors)},
        "parts_us": {"mix": [{str(at): us * f for at, us in enumerate(kernels)} for f in factors[:timed]]},
    }


def test_plans_of_one_kernel_do_not_count(tmp_path: Path) -> None:
    race = slowed([1.0] * 3)
    race["parts_us"]["single"] = [{"0": 90.0}] * 2

    found = plans([database(tmp_path, race)])

    assert [(model, plan.name, plan.kernels) for model, plan in found] == [("net", "mix", 2)]


def test_a_machine_that_becomes_slower_later_does_not_mislead_who_normalises_each_round_by_all_of_it(
    tmp_path: Path,
) -> None:
    [(_, plan)] = plans([database(tmp_path, slowed([1.0, 1.0, 2.0, 2.0, 2.0]))])

    found = errors(plan)

    assert found["not at all"] == pytest.approx(1.0)
    assert found["each round by all of its calibration"] == pytest.approx(0.0)
    assert found[OWN] == pytest.approx(0.0)
    # the plan by the root of 2, its kernels by that of 1: each is at the usual speed of its own rounds
    assert found["all rounds by the root of the calibration's median"] == pytest.approx(math.sqrt(2) - 1)
    assert set(found) == {*WAYS, OWN}


def test_a_page_compares_all_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database(tmp_path, slowed([1.0, 1.0, 1.0]))

    assert race_normalising.main(["--work", str(tmp_path), "--results", str(tmp_path / "found.json")]) == 0
    assert "| not at all | 0.0% | 0.0% |" in (tmp_path / "found.md").read_text(encoding="utf-8")
    assert race_normalising.main(["--work", str(tmp_path / "found.json")]) == 2
    assert "no plan of several kernels raced" in capsys.readouterr().err
