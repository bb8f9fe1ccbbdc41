"""Metrics of the user's own: how they are named, and one message for each way in which they fail."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collage.control.metric import UserMetric, metric_version
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

    file.write_text("import sys; sys.exit(0)")

    with pytest.raises(UsageError, match="cannot be imported: SystemExit: 0"):
        UserMetric.read(f"{file}:hits", 0.5)


def test_a_pipe_is_no_metric_whoever_asks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")

    for ask in (metric_version, lambda given: UserMetric.read(given, 0.5)):
        with pytest.raises(UsageError, match=r"pipe\.py"):
            ask(f"{tmp_path / 'pipe.py'}:f")


def test_a_file_may_import_its_neighbours_and_hold_dataclasses(file: Path) -> None:
    (file.parent / "labels_of_test_metric.py").write_text("LABEL = 2.0")
    file.write_text(
        "from __future__ import annotations\nimport dataclasses\nfrom labels_of_test_metric import LABEL\n"
        "@dataclasses.dataclass\nclass Score:\n    value: float\n"
        "def score(outputs, samples):\n    return Score(LABEL).value\n"
    )

    assert UserMetric.read(f"{file}:score", 0.5).of([{"y": 1}], [{}]) == 2.0


def test_the_code_that_is_run_is_that_of_the_version(file: Path) -> None:
    found = []
    for value in (5, 7):
        file.write_text(f"def score(outputs, samples):\n    return {value}\n")
        os.utime(file, (1, 1))  # by which Python would take what it compiled before for current
        metric = UserMetric.read(f"{file}:score", 0.5)
        found.append((metric.of([{"y": 1}], [{}]), metric.version))

    assert [value for value, _ in found] == [5.0, 7.0]
    assert found[0][1] != found[1][1]


def test_a_metric_moves_nothing_and_prints_nothing_to_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def messy(outputs: Any, samples: Any) -> float:
        print("found it")
        os.chdir(tmp_path)
        outputs[0].clear()
        return 1.0

    before, outputs = Path.cwd(), [{"y": 1}]

    assert UserMetric.read(messy, 0.5).of(outputs, [{}]) == 1.0
    assert Path.cwd() == before
    assert outputs == [{"y": 1}]
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "found it\n")


FAILING: dict[str, tuple[Callable[..., Any], str]] = {
    "raises": (
        lambda outputs, samples: outputs[0]["z"],
        r"it raised KeyError: 'z' \(outputs are y; arrays of a sample are label\)",
    ),
    "exits": (lambda outputs, samples: sys.exit(0), "it raised SystemExit: 0"),
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
