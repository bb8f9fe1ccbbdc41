"""A plan is found again from what a store has, where neither the toolchains nor their plugins are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collage.build.verifying.wrong_plans import WrongPlans
from collage.commands.optimize import optimize
from collage.commands.stores.resolve import resolve
from collage.options import OptimizeOptions
from collage.resolve.noting import takes_of
from collage.resolve.saved_machine import machine_named
from collage.setup.workload import Workload
from collage.store import export_lines, import_lines, open_database
from collage_core.errors import UsageError
from tests.integration.commands.environments import Environment
from tests.integration.commands.models import written
from tests.integration.short import few_rounds, known_peaks

pytestmark = pytest.mark.plugins

PLUGINS = ("collage-onnxruntime", "onnxruntime", "collage-openvino", "openvino", "collage-halide", "halide")
OTHERS = (
    *("collage-sampler", "collage-cublas", "collage-cuda", "collage-cudnn", "collage-cutlass", "collage-tensorrt"),
    "collage-triton",
)
RESOLVE = """
import importlib.metadata, importlib.util, sys
from collage.cli import main
assert not any(map(importlib.util.find_spec, ("onnxruntime", "openvino")))
assert {each.name for each in importlib.metadata.entry_points(group="collage.backends")} <= {"reference"}
main(sys.argv[1:], prog_name="collage")
"""


def options(database: Path | str, **changes: object) -> OptimizeOptions:
    given = {"toolchains": "onnxruntime,openvino", "preset": "quick", "tuning_db": str(database), **changes}
    return OptimizeOptions(**given)  # type: ignore[arg-type]


def exported(database: Path, copy: Path) -> Path:
    """A copy by way of an export, as another machine gets it."""
    with open_database(database, read_only=True) as store, open_database(copy) as other:
        import_lines(other, export_lines(store))
    return copy


@pytest.fixture(scope="module")
def optimized(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, bytes]]:
    """A model, an exported store, and the plans that were found: with both toolchains, and without one."""
    folder = tmp_path_factory.mktemp("optimized")
    model = written("cnn", folder)
    plans = {}
    with known_peaks(), few_rounds():
        for without in ("", "openvino"):
            plan = folder / f"plan-{without}.json"
            optimize(model, options(folder / "db", exclude=(without,) if without else ())).save_plan(plan)
            plans[without] = plan.read_bytes()
    return model, exported(folder / "db", folder / "copy"), plans


@pytest.mark.parametrize("without", ["", "openvino"])
def test_the_plan_is_the_one_that_was_found_there(
    optimized: tuple[Path, Path, dict[str, bytes]], without: str, tmp_path: Path
) -> None:
    model, copy, plans = optimized

    with few_rounds():
        found = resolve(model, options(copy, exclude=(without,) if without else ()))
    found.save_plan(tmp_path / "plan.json")

    assert (tmp_path / "plan.json").read_bytes() == plans[without]
    assert found.report.measured_ms is not None


def test_for_another_objective_costs_decide_where_no_race_was_for_it(
    optimized: tuple[Path, Path, dict[str, bytes]],
) -> None:
    model, copy, _ = optimized

    with few_rounds():
        found = resolve(model, options(copy, percentile=90.0))

    assert found.report.measured_ms is None
    assert "did not race there" in found.report.decision


def test_what_the_store_does_not_know_is_said(optimized: tuple[Path, Path, dict[str, bytes]], tmp_path: Path) -> None:
    model, copy, _ = optimized
    open_database(tmp_path / "empty").close()

    with pytest.raises(UsageError, match="knows no machine"):
        resolve(model, options(tmp_path / "empty"))
    with pytest.raises(UsageError, match="knows no machine 'elsewhere'"):
        resolve(model, options(copy), host="elsewhere")
    with pytest.raises(UsageError, match="knows nothing of this model with tensorrt"):
        resolve(model, options(copy, toolchains="tensorrt"))
    with pytest.raises(UsageError, match="optimize with that bound there"):
        resolve(model, options(copy, max_error=0.1))


def test_a_plan_that_was_wrong_there_is_not_chosen(
    optimized: tuple[Path, Path, dict[str, bytes]], tmp_path: Path
) -> None:
    model, copy, _ = optimized
    with few_rounds():
        first = resolve(model, options(copy))
        with open_database(shutil.copy(copy, tmp_path / "copy")) as store:
            host = machine_named(store, None)
            workload = Workload(model)
            wrong = WrongPlans(store, workload.sha256, workload.key, host, first.report.threads)
            plugins = {take.target.toolchain: take.plugin for take in takes_of(store, host, workload.graph)}
            wrong.note(first.plan, [plugins[name] for name in first.plan.toolchains], "its numbers are off")
        second = resolve(model, options(tmp_path / "copy"))

    assert second.plan.key != first.plan.key
    assert second.report.notes == (
        *first.report.notes,
        f"{first.plan.name} was the fastest and was not kept there: its numbers are off",
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"search": "two-level"}, "two-level search runs whole plans"),
        ({"load_plan": "plan.json"}, "a plan file, rules of your own and a runner are for optimize"),
        ({"runner": "local"}, "a plan file, rules of your own and a runner are for optimize"),
    ],
)
def test_what_a_store_cannot_know_is_refused(
    more: dict[str, Any], said: str, optimized: tuple[Path, Path, dict[str, bytes]]
) -> None:
    model, copy, _ = optimized

    with pytest.raises(UsageError, match=said):
        resolve(model, options(copy, **more))


@pytest.mark.slow
def test_no_plugin_and_no_library_is_needed(tmp_path: Path) -> None:
    model = written("cnn", tmp_path)
    common = ["--preset", "quick", "--toolchains", "onnxruntime,openvino", "--tuning-db"]
    there = [sys.executable, "-m", "collage.cli", "optimize", model, "-o", tmp_path / "there.collage", *common]
    plan = ["--save-plan", tmp_path / "there.json"]
    subprocess.run([*map(str, there), str(tmp_path / "db"), *map(str, plan)], check=True, capture_output=True)
    copy = exported(tmp_path / "db", tmp_path / "copy")
    elsewhere = Environment(tmp_path / "elsewhere", without=(*PLUGINS, *OTHERS))

    done = elsewhere.run(
        RESOLVE, "resolve", model, *common, copy, "-o", tmp_path / "here.json", "--json", tmp_path / "report.json"
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()
    assert json.loads((tmp_path / "report.json").read_text())["measured_ms"] > 0
