"""Whatever is wrong with the structure of a model, the driver ends in a result or in one message."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.integration.fuzz.__main__ import STAGES, Hunt


def hunted(folder: Path, seed: int, stages: tuple[str, ...], most: int, seconds: float = math.inf) -> Hunt:
    hunt = Hunt(folder)
    hunt.run(seed, stages, seconds=seconds, most=most, node_tests=most > 1000)
    assert hunt.defects == []
    return hunt


@pytest.mark.guards("mutated models, prepared, indexed and partitioned", "a result or a `CollageError`", area="input")
def test_mutants_are_prepared_and_partitioned_or_refused(tmp_path: Path) -> None:
    counts = hunted(tmp_path, 7, ("partition",), 300).counts

    assert sum(counts.values()) == 300
    assert min(counts["partition: result"], counts["partition: refused"]) > 50


@pytest.mark.guards(
    "mutated models on the installed toolchains, through `inspect` and `optimize`",
    "a result or a `CollageError`",
    area="input",
)
@pytest.mark.slow
@pytest.mark.plugins
def test_mutants_are_run_by_the_installed_toolchains_or_refused(tmp_path: Path) -> None:
    assert hunted(tmp_path, 11, ("run",), 30).counts["run: result"] > 3


@pytest.mark.guards("mutated models on the installed toolchains, through `inspect` and `optimize`")
@pytest.mark.plugins
def test_mutants_are_inspected_and_optimized_or_refused(tmp_path: Path) -> None:
    hunted(tmp_path, 13, ("inspect", "optimize"), 4)


@pytest.mark.slow
@pytest.mark.plugins
def test_ten_minutes_of_mutants_leave_no_defect(tmp_path: Path) -> None:
    assert sum(hunted(tmp_path, 1, STAGES, 1_000_000, 600.0).counts.values()) > 500
