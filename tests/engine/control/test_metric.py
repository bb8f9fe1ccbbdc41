"""Metrics of the user's own: how they are named, and one message for each way in which they fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collage.control.metric import UserMetric
from collage.errors import MetricError
from collage.options import OptimizeOptions
from collage_core.errors import UsageError

CODE = """
def hits(outputs, samples):
    return sum(float(out["y"] == sample["label"]) for out, sample in zip(outputs, samples))

def alone(outputs):
    return 1.0

number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "metric.py"
    path.write_text(CODE)
    return path


def test_a_function_of_a_file_is_called_with_outputs_and_samples(file: Path) -> None:
    metric = UserMetric.read(f"{file}:hits", 0.5)

    assert (metric.name, metric.max_drop) == ("hits", 0.5)
    assert metric.of([{"y": 1}, {"y": 2}], [{"label": 1}, {"label": 1}]) == 1.0


def test_its_version_follows_the_file(file: Path) -> None:
    first = UserMetric.read(f"{file}:hits", 0.5).version
    file.write_text(CODE + "\n")

    assert "" != first != UserMetric.read(f"{file}:hits", 0.5).version


def test_a_function_of_python_has_no_version() -> None:
    metric = UserMetric.read(lambda outputs, samples: len(outputs), 0.0)

    assert metric.version == ""
    assert metric.of([{}, {}], [{}, {}]) == 2.0


WRONG: dict[str, tuple[Callable[[Path], str], str]] = {
    "no function": (str, "FILE.py:FUNCTION"),
    "no Python": (lambda file: f"{file.with_suffix('.txt')}:f", "FILE.py:FUNCTION"),
    "no file": (lambda file: f"{file.with_name('other.py')}:f", "other.py"),
    "no such function": (lambda file: f"{file}:misses", "no function 'misses', but alone, hits"),
    "a number": (lambda file: f"{file}:number", "no function 'number'"),
    "one argument": (lambda file: f"{file}:alone", "two arguments, outputs and samples"),
}


@pytest.mark.parametrize(("given", "message"), WRONG.values(), ids=WRONG)
def test_what_is_no_metric_is_named(file: Path, given: Callable[[Path], str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        UserMetric.read(given(file), 0.5)


def test_a_file_that_fails_when_it_is_imported_is_named(file: Path) -> None:
    file.write_text("import no_such_module_of_anybody")

    with pytest.raises(UsageError, match=r"cannot be imported: ModuleNotFoundError: .*no_such_module"):
        UserMetric.read(f"{file}:hits", 0.5)


FAILING: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (
        lambda outputs, samples: outputs[0]["z"],
        r"it raised KeyError: 'z' \(outputs are y; arrays of a sample are label\)",
    ),
    "NaN": (lambda outputs, samples: math.nan, "it returned nan"),
    "no number": (lambda outputs, samples: "much", "it raised ValueError"),
    "nothing": (lambda outputs, samples: None, "it raised TypeError"),
}


@pytest.mark.parametrize(("function", "message"), FAILING.values(), ids=FAILING)
def test_a_metric_that_cannot_be_computed_says_why(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(MetricError, match=message):
        UserMetric.read(function, 0.5).of([{"y": 1}], [{"label": 1}])


def test_metric_drop_and_samples_are_given_together() -> None:
    for given in ({"metric": "m.py:f"}, {"max_drop": 0.5}, {"labelled": [{}], "metric": "m.py:f"}):
        with pytest.raises(UsageError, match="give all three"):
            OptimizeOptions(**given)
    for drop in (-1.0, math.nan, math.inf):
        with pytest.raises(UsageError, match="--max-drop"):
            OptimizeOptions(metric="m.py:f", labelled=[{}], max_drop=drop)
