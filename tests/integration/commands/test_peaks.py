"""What a machine allows a plan, over real toolchains: measured once, kept, and never worth a failure."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

import pytest

from collage.commands.optimize import optimize
from collage.commands.optimized import Optimized
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions
from collage.peaks import machine_peaks
from collage.peaks.products import fastest_product
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from tests.integration.commands.models import written

pytestmark = pytest.mark.plugins

OPTIONS = functools.partial(
    OptimizeOptions, toolchains="onnxruntime", threads=1, warmup=1, iterations=3, duration_s=0.001, budget_s=1.0
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peaks")


@pytest.fixture(scope="module")
def first(folder: Path) -> Optimized:
    return optimize(written("cnn", folder), OPTIONS(tuning_db=str(folder / "tuning.sqlite")))


def test_a_plan_is_held_against_products_by_numpy_and_by_the_toolchains(first: Optimized, folder: Path) -> None:
    machine, limit = first.record.machine, first.record.limit
    assert machine is not None
    assert limit is not None

    assert machine.missing == ""
    assert machine.threads == 1
    [peak] = machine.peaks
    assert peak.arithmetic == "float32"
    assert peak.by in ("numpy", "onnxruntime", "onnxruntime(spin=true)")
    assert [level.level for level in machine.bandwidths][-1] == "memory"
    assert limit.least_us > 0
    assert first.record.share_of_peak is not None
    assert all(region.limit is not None and region.limit.least_us > 0 for region in first.record.regions)


def test_a_later_run_measures_no_peak_again(first: Optimized, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_peaks, "own_command", lambda *_: pytest.fail("NumPy was measured again"))
    monkeypatch.setattr(MeasuringCostSource, "_measured", lambda *_: pytest.fail("something was measured again"))
    monkeypatch.setattr("collage.peaks.measured_limits._REPETITIONS", 0)

    again = optimize(folder / "cnn.onnx", OPTIONS(tuning_db=str(folder / "tuning.sqlite")))

    assert again.record.machine == first.record.machine
    assert again.record.limit == first.record.limit


@pytest.mark.guards(
    "the machine's peaks cannot be measured",
    "the plan is made all the same; the report says why the estimate is missing",
    area="toolchains",
)
def test_peaks_that_cannot_be_measured_cost_their_figures_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_peaks, "own_command", lambda *_: [sys.executable, "-c", "raise SystemExit('no')"])

    record = optimize(written("cnn", folder), OPTIONS(tuning_db="memory:")).record

    assert record.regions
    assert record.machine is not None
    assert record.machine.missing == "the process that measures them ended with 1 and said no"
    assert record.limit is not None
    assert record.limit.not_estimated == "the speed of memory is not known"
    assert record.share_of_peak is None


@pytest.mark.parametrize("arithmetic", ["float32", "float64", "int8"])
def test_toolchains_multiply_large_matrices_as_ordinary_candidates(arithmetic: str) -> None:
    choices = SetupChoices.of(OPTIONS(tuning_db="memory:"))
    with Toolchains(choices) as toolchains:
        [target] = [each for each in toolchains.targets() if each.name == "onnxruntime"]

        found = fastest_product(arithmetic, toolchains, choices, [target])
        nobody = fastest_product(arithmetic, toolchains, choices, [])
        kept = toolchains.database.stats()

    assert found is not None
    assert (found.arithmetic, found.by) == (arithmetic, "onnxruntime")
    assert found.flops_per_us > 0
    assert nobody is None
    assert kept.by_outcome == {"measured": 1}


def test_a_target_without_a_kernel_for_an_arithmetic_has_no_product() -> None:
    choices = SetupChoices.of(OPTIONS(tuning_db="memory:"))
    with Toolchains(choices) as toolchains:
        [target] = [each for each in toolchains.targets() if each.name == "onnxruntime"]

        assert fastest_product("bfloat16", toolchains, choices, [target]) is None
