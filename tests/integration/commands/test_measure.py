"""One kernel on every target that takes it: timed in turns, checked, and kept where searches find it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result

from collage.cli import main
from collage.commands.measure import measure
from collage.options import OptimizeOptions
from collage.store import open_database
from collage_core.errors import UsageError
from tests.integration.commands.conftest import BOTH, TINY_ARGUMENTS

pytestmark = pytest.mark.plugins

TEXT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[8,16] x) => (float[8,16] y, float[8,1] s) {
    [first] a = Exp(x)  [second] b = Tanh(a)  [third] y = Sub(b, x)  [last] s = ReduceMax <keepdims = 1> (y)
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("measure")
    onnx.save(onnx.parser.parse_model(TEXT), folder / "model.onnx")
    return folder


def run(folder: Path, *arguments: str) -> Result:
    common = ("--toolchains", f"{BOTH},reference", "--tuning-db", str(folder / "db"), *TINY_ARGUMENTS)
    return CliRunner().invoke(main, ["measure", str(folder / "model.onnx"), *common, *arguments])


def report(folder: Path, *arguments: str) -> dict[str, Any]:
    done = run(folder, "--json", str(folder / "report.json"), *arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return found


def test_targets_that_take_a_kernel_are_timed_and_the_others_say_why_not(folder: Path) -> None:
    found = report(folder, "--nodes", "first,second", "--rounds", "3")

    assert found["nodes"] == ["first", "second"]
    assert found["operators"] == ["Exp", "Tanh"]
    by_target = {each["target"]: each for each in found["targets"]}
    timed = [each for each in found["targets"] if each["cost_us"] is not None]
    assert {"onnxruntime", "openvino"} <= {each["target"] for each in timed}
    assert "not as one kernel" in by_target["reference"]["reason"]  # it takes single operators
    assert timed[0]["ratio"] == 1.0
    for each in timed:
        low, high = each["ci95_us"]
        assert 0 < low <= each["cost_us"] <= high
        assert each["ratio"] > 0
        assert each["reason"] == ""
    assert [each["cost_us"] for each in timed] == sorted(each["cost_us"] for each in timed)


@pytest.mark.slow
def test_what_is_measured_is_kept_where_searches_find_it(folder: Path) -> None:
    report(folder, "--nodes", "third", "--rounds", "2")
    with open_database(str(folder / "db"), read_only=True) as store:
        before = store.stats().records

    report(folder, "--nodes", "third", "--rounds", "2")

    with open_database(str(folder / "db"), read_only=True) as store:
        purposes = [record.purpose for record in store.all_records()]
        assert store.stats().records > before  # fresh samples; what was built once is known to be right
    assert {"select", "confirm"} <= set(purposes)


def test_without_nodes_it_is_the_whole_model(folder: Path) -> None:
    assert report(folder, "--rounds", "1")["operators"] == ["Exp", "Tanh", "Sub", "ReduceMax"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--nodes", "frist"), "the prepared model has no node 'frist'; did you mean 'first'?"),
        (("--nodes", "first,third"), "these nodes cannot be one kernel: a value flows out of them and back in"),
        (("--rounds", "0"), "0 is not in the range x>=1"),
    ],
)
def test_what_is_no_kernel_is_misuse(folder: Path, arguments: tuple[str, ...], said: str) -> None:
    done = run(folder, *arguments)

    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())


def test_from_python_there_is_at_least_one_round(folder: Path) -> None:
    with pytest.raises(UsageError, match="in at least one round, not 0"):
        measure(folder / "model.onnx", options=OptimizeOptions(tuning_db="memory:"), rounds=0)


@pytest.mark.slow
def test_a_budget_ends_it_with_what_was_measured(folder: Path) -> None:
    found = report(folder, "--nodes", "second", "--rounds", "1000", "--budget", "8s")

    assert any(each["cost_us"] is not None for each in found["targets"])
