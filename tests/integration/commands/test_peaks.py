"""What a machine allows a plan, over real toolchains: measured once, kept, and never worth a failure."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage.commands.optimize import optimize
from collage.commands.optimizing.optimized import Optimized
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions
from collage.peaks import machine_peaks
from collage.peaks.machine_peaks import ProductSpeed
from collage.peaks.products import fastest_product
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains
from collage_core.ir.io.model_io import save_model
from collage_testing import GraphBuilder
from tests.integration.commands.conftest import TINY

pytestmark = pytest.mark.plugins

OPTIONS = functools.partial(OptimizeOptions, toolchains="onnxruntime", threads=1, **TINY)


@pytest.fixture(scope="module", autouse=True)
def known_peaks() -> None:
    """The machine's peaks are measured, unlike elsewhere."""


def model(folder: Path) -> Path:
    """Write a model with few candidates."""
    g = GraphBuilder("small")
    product = g.op("MatMul", g.input("x", 64, 64), g.weight("w", 64, 64))
    save_model(g.model(g.op("Relu", product)), folder / "small.onnx")
    return folder / "small.onnx"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("peaks")


@pytest.fixture(scope="module")
def first(folder: Path) -> Optimized:
    return optimize(model(folder), OPTIONS(tuning_db=str(folder / "tuning.sqlite")))


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
    monkeypatch.setattr(MeasuringCostSource, "_attempt", lambda *_: pytest.fail("something was measured again"))
    monkeypatch.setattr("collage.peaks.measured_limits._REPETITIONS", 0)

    again = optimize(folder / "small.onnx", OPTIONS(tuning_db=str(folder / "tuning.sqlite")))

    assert again.record.machine == first.record.machine
    assert again.record.limit == first.record.limit


@pytest.mark.slow
@pytest.mark.guards(
    "the machine's peaks cannot be measured",
    "the plan is made all the same; the report says why the estimate is missing",
    area="toolchains",
)
def test_peaks_that_cannot_be_measured_cost_their_figures_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_peaks, "own_command", lambda *_: [sys.executable, "-c", "raise SystemExit('no')"])

    record = optimize(model(folder), OPTIONS(tuning_db="memory:")).record

    assert record.regions
    assert record.machine is not None
    assert record.machine.missing == "the process that measures them ended with 1 and said no"
    assert record.limit is not None
    assert record.limit.not_estimated == "the speed of memory is not known"
    assert record.share_of_peak is None


@dataclasses.dataclass(frozen=True)
class Workshop:
    """Toolchains at work, which measure products."""

    choices: SetupChoices
    toolchains: Toolchains

    def fastest(self, arithmetic: str, *names: str) -> ProductSpeed | None:
        targets = [each for each in self.toolchains.targets() if each.name in names]
        assert len(targets) == len(names)
        return fastest_product(arithmetic, self.toolchains, self.choices, targets)


@pytest.fixture(scope="module")
def workshop() -> Iterator[Workshop]:
    choices = SetupChoices.of(OPTIONS(tuning_db="memory:"))
    with Toolchains(choices) as toolchains:
        yield Workshop(choices, toolchains)


@pytest.mark.parametrize("arithmetic", ["float32", "float64", "int8"])
def test_toolchains_multiply_large_matrices_as_ordinary_candidates(arithmetic: str, workshop: Workshop) -> None:
    before = workshop.toolchains.database.stats().by_outcome.get("measured", 0)

    found = workshop.fastest(arithmetic, "onnxruntime")
    nobody = workshop.fastest(arithmetic)
    kept = workshop.toolchains.database.stats()

    assert found is not None
    assert (found.arithmetic, found.by) == (arithmetic, "onnxruntime")
    assert found.flops_per_us > 0
    assert nobody is None
    assert kept.by_outcome == {"measured": before + 1}


def test_a_target_without_a_kernel_for_an_arithmetic_has_no_product(workshop: Workshop) -> None:
    assert workshop.fastest("bfloat16", "onnxruntime") is None
