"""`collage frontier` with real toolchains on a small model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir
import pytest
from click.testing import CliRunner

import collage
from collage.cli import main
from collage.options import PRESETS, OptimizeOptions
from collage.store import open_database
from collage_core.errors import UsageError
from collage_testing import GraphBuilder
from tests.integration.commands.conftest import TINY
from tests.valid_json import valid

pytestmark = pytest.mark.plugins("onnxruntime", "openvino")


@pytest.fixture(autouse=True)
def little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preset measures next to nothing, as where commands have options for that, and packages run for a moment."""
    monkeypatch.setitem(PRESETS, "quick", OptimizeOptions(**TINY).effective)
    monkeypatch.setattr("collage.commands.frontier._ROUNDS", 4)
    monkeypatch.setattr("collage.commands.frontier._ROUND_S", 0.01)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    g = GraphBuilder("net")
    value = g.input("x", 32, 64)
    for number in range(3):
        value = g.op("Relu", g.op("MatMul", value, g.weight(f"w{number}", 64, 64)))
    onnx_ir.save(g.model(value), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def run(model: Path, *more: str) -> tuple[int, str]:
    folder = model.parent / "frontier"
    result = CliRunner().invoke(
        main,
        [
            *("frontier", str(model), "-o", str(folder), "--max-errors", "0.05", "--preset", "quick"),
            *("--tuning-db", str(model.parent / "tuning.sqlite"), "--toolchains", "onnxruntime,openvino", *more),
        ],
    )
    return result.exit_code, result.output


def records(model: Path) -> int:
    with open_database(str(model.parent / "tuning.sqlite"), read_only=True) as database:
        return database.stats().records


@pytest.mark.slow
def test_there_is_a_package_within_each_bound_and_a_second_run_measures_nothing(model: Path) -> None:
    status, output = run(model)

    assert status == 0, output
    folder = model.parent / "frontier"
    document = valid("frontier", (folder / "frontier.json").read_text())
    assert [each["max_error"] for each in document["points"]] == [None, 0.05]
    x = np.random.default_rng(3).normal(size=(32, 64)).astype(np.float32)
    [right] = collage.load(folder / "own-types.collage").run(None, {"x": x})
    for each in document["points"][1:]:
        assert each["error"] <= each["max_error"]
        assert each["latency_ms"]["n"] > 0
        [found] = collage.load(folder / each["package"]).run(None, {"x": x})
        assert np.abs(found - right).max() <= 2 * each["max_error"] * np.quantile(np.abs(right), 0.999)
    assert {path.name for path in folder.iterdir()} == {
        *("own-types.collage", "max-error-0.05.collage"),
        *("frontier.json", "frontier.png", "frontier.svg"),
    }
    before = records(model)

    status, output = run(model, "--no-plot")

    assert status == 0, output
    assert records(model) == before, "what was measured for a bound is not measured again"


@pytest.mark.parametrize("bounds", ["", "0", "1", "0.1,x", "nan"])
def test_bounds_that_are_none_are_one_message(model: Path, bounds: str) -> None:
    result = CliRunner().invoke(main, ["frontier", str(model), "-o", "out", "--max-errors", bounds])

    assert result.exit_code == 2
    assert "--max-errors" in result.output


def test_ranges_are_for_the_bounds_and_not_for_the_plan_in_own_types(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[float | None, str]] = []

    def found(_: Path, __: Path, options: collage.OptimizeOptions, *___: object) -> None:
        seen.append((options.max_error, options.ranges))
        if options.max_error is not None:
            raise UsageError("that is all")

    monkeypatch.setattr("collage.commands.frontier._optimized", found)

    status, output = run(model, "--ranges", "percentile")

    assert (status, "that is all" in output) == (2, True)
    assert seen == [(None, "minmax"), (0.05, "percentile")]
