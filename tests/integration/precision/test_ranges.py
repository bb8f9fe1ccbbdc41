"""Ranges by each calibrator, of a model one activation of which has rare huge outliers, with a real toolchain."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

import collage
from collage.decide.decision import decide
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.messages import AskHistograms
from collage.measure.wire.outcomes import Failed, Stage
from collage.options import OptimizeOptions
from collage.precision.sensitivity import histograms
from collage.precision.sensitivity.calibrators import CALIBRATORS, SHARE
from collage.precision.sensitivity.groups import product_groups
from collage.precision.sensitivity.prober import Choice, Prober
from collage.precision.sensitivity.samples import Samples
from collage.reference.evaluator import evaluate
from collage.report.text.explanation import explain
from collage.setup.environment import Environment
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage.values.histogram import Histogram
from collage_core.contract import Cost, Target, Unmeasured
from collage_core.errors import CollageError
from collage_core.fusion import CandidateKernel
from collage_core.ir.operators.quantising import Range, quantisable
from collage_testing import GraphBuilder

pytestmark = pytest.mark.plugins("openvino")

BOUND = 0.1
ROWS, WIDTH = 64, 256
FAR = 1000.0
"""What is added to one element of 16384, which the weights hardly count."""
Opened = Environment[Workload]


def outlying() -> onnx_ir.Model:
    """Two layers: the first reads the input, the second the outliers, and a third reads what the second does."""
    g = GraphBuilder("outlying")
    x = g.input("x", ROWS, WIDTH)
    spike, second = np.zeros((ROWS, WIDTH), np.float32), _weight(1)
    spike[0, 0] = FAR
    second[0] *= 1e-4
    value = g.op("Tanh", g.op("MatMul", x, g.constant("w0", _weight(0))))
    value = g.op("Add", value, g.constant("spike", spike))
    value = g.op("Relu", g.op("MatMul", value, g.constant("w1", second)))
    return g.model(g.op("MatMul", value, g.constant("w2", _weight(2))))


def _weight(seed: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)).astype(np.float32) / np.float32(WIDTH**0.5)


@pytest.fixture(scope="module")
def environment() -> Iterator[Opened]:
    options = OptimizeOptions(max_error=BOUND, tuning_db="memory:", preset="quick", toolchains="openvino")
    with Environment.open(functools.partial(Workload, outlying()), SetupChoices.of(options)) as opened:
        yield opened


@pytest.fixture(scope="module")
def target(environment: Opened) -> Target:
    return next(each for each in environment.toolchains.targets() if each.exact)


@pytest.fixture(scope="module")
def read(environment: Opened) -> dict[int, np.ndarray[Any, Any]]:
    """All numbers that each product reads, by the reference."""
    found: dict[int, list[np.ndarray[Any, Any]]] = {}
    for inputs in environment.workload.calibration:
        values = {**inputs, **evaluate(environment.graph.model, dict(inputs)).values}
        for index, node in enumerate(environment.graph.nodes):
            if (product := quantisable(node)) is not None:
                found.setdefault(index, []).append(np.asarray(values[str(product.activation.name)]).reshape(-1))
    return {index: np.concatenate(parts) for index, parts in found.items()}


def error_of(environment: Opened, target: Target, ranges: dict[int, Range]) -> float:
    """Error of the outputs with all products in 8-bit integers."""
    groups = product_groups(environment.graph, ranges)
    [error] = Prober(environment, groups, target).errors([Choice(int8=(1 << len(groups)) - 1)])
    return error


def test_a_percentile_holds_its_share_of_what_products_read(
    environment: Opened, target: Target, read: dict[int, np.ndarray[Any, Any]]
) -> None:
    found = Samples(environment, target, "percentile").ranges()

    assert found.keys() == read.keys()
    for index, span in found.items():
        inside = np.mean((read[index] >= span.low - 1e-5) & (read[index] <= span.high + 1e-5))
        assert SHARE <= inside < 1.0
    # what a ReLU gives has one sign, so the range is a quantile
    last = max(found)
    assert found[last].low == 0.0
    assert found[last].high == pytest.approx(np.quantile(read[last], SHARE, method="higher"), rel=1e-3)


@pytest.mark.parametrize("name", ["percentile", "entropy"])
def test_ranges_are_those_of_the_elements_themselves(
    environment: Opened, target: Target, read: dict[int, np.ndarray[Any, Any]], name: str
) -> None:
    """The toolchain rounds otherwise than the reference, so a few elements are in the next bin."""
    calibrator = CALIBRATORS[name]
    assert calibrator is not None

    found = Samples(environment, target, name).ranges()

    for index, values in read.items():
        span = Range.around(float(values.min()), float(values.max()))
        largest = max(-span.low, span.high)
        counts = Histogram.of_counts(largest, _counted(values, largest, calibrator.bins))
        wanted = calibrator.choose(counts, span)
        assert found[index].low == pytest.approx(wanted.low, abs=4 * counts.width)
        assert found[index].high == pytest.approx(wanted.high, abs=4 * counts.width)


def _counted(values: np.ndarray[Any, Any], largest: float, bins: int) -> np.ndarray[Any, Any]:
    outer, _ = np.histogram(values[values != 0], bins, (-largest, largest))
    return np.array([np.count_nonzero(values == 0), *outer])


def test_rare_outliers_widen_the_least_and_largest_numbers_and_no_other_ranges(
    environment: Opened, target: Target
) -> None:
    widest = {
        name: max(span.high for span in Samples(environment, target, name).ranges().values()) for name in CALIBRATORS
    }

    assert widest["minmax"] == pytest.approx(FAR, abs=2)
    assert widest["percentile"] < 10
    # as many bins as there are levels take an eighth of the largest
    assert widest["entropy"] == pytest.approx(FAR / 8, rel=0.02)


def test_the_outputs_are_off_by_far_less_without_rare_outliers(environment: Opened, target: Target) -> None:
    errors = {name: error_of(environment, target, Samples(environment, target, name).ranges()) for name in CALIBRATORS}

    assert errors["percentile"] < BOUND < errors["entropy"] < errors["minmax"] / 4
    assert errors["minmax"] > 10 * errors["percentile"]


def test_memory_is_bounded_and_what_is_known_is_not_run_again(
    environment: Opened, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Samples(environment, target, "percentile").ranges()
    asked: list[AskHistograms] = []
    worker = environment.toolchains.pool.worker(target.toolchain)
    evaluated = type(worker).evaluate

    def noted(self: Any, ask: Any) -> Any:
        asked.append(ask)
        return evaluated(self, ask)

    monkeypatch.setattr(type(worker), "evaluate", noted)

    assert Samples(environment, target, "percentile").ranges() == whole
    assert asked == []

    monkeypatch.setattr(histograms, "_MOST_BYTES", 1)
    monkeypatch.setattr(environment.toolchains.database, "get_document", lambda *_: None)
    monkeypatch.setattr(environment.toolchains.database, "put_document", lambda *_: None)

    apart = Samples(environment, target, "percentile").ranges()

    assert [len(ask.largest) for ask in asked] == [1, 1, 1]
    for index, span in whole.items():
        assert (apart[index].low, apart[index].high) == pytest.approx((span.low, span.high), rel=1e-3)


def test_a_worker_that_cannot_count_is_named(
    environment: Opened, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = environment.toolchains.pool.worker(target.toolchain)
    failed = Failed(stage=Stage.RUN, reason="out of memory")
    monkeypatch.setattr(environment.toolchains.database, "get_document", lambda *_: None)
    monkeypatch.setattr(type(worker), "evaluate", lambda *_: failed)

    with pytest.raises(CollageError, match="openvino does not run the model on calibration samples: out of memory"):
        Samples(environment, target, "entropy").ranges()


@pytest.fixture
def fast_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers are fast here, whatever the machine says."""
    cost = MeasuringCostSource.cost

    def cheap(self: MeasuringCostSource, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        known = cost(self, candidate, confirmed=confirmed)
        return known if isinstance(known, Unmeasured) or candidate.target.exact else known / 1000

    def first_in_int8(contenders: Any, seed: int, **others: Any) -> Any:
        decision = decide(contenders, seed, **others)
        named = [each.name for each in contenders if "int8" in each.name]
        return dataclasses.replace(decision, winner=named[0]) if named else decision

    monkeypatch.setattr(MeasuringCostSource, "cost", cheap)
    monkeypatch.setattr("collage.decide.kept.decide", first_in_int8)


@pytest.mark.usefixtures("fast_integers")
@pytest.mark.slow
def test_optimizing_with_percentiles_quantises_what_the_outliers_forbid_and_says_so(tmp_path: Path) -> None:
    def optimized(**options: Any) -> Any:
        return collage.optimize(
            outlying(),
            toolchains="openvino,openvino(precision=int8)",
            preset="quick",
            max_error=BOUND,
            tuning_db=str(tmp_path / "tuning.sqlite"),
            **options,
        )

    plain, found = optimized(), optimized(ranges="percentile")

    def eight(record: Any) -> int:
        return sum(len(each.precision.int8) for each in record.regions if each.precision is not None)

    assert eight(plain.record) == 2, "all but the one that reads the outliers"
    assert eight(found.record) == 3
    assert found.record.max_error <= BOUND
    assert (plain.record.ranges, found.record.ranges) == ("minmax", "percentile")
    assert "(--ranges percentile)" in " ".join(explain(found.record).split())
    found.save_plan(tmp_path / "plan.json")
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["ranges"] == "percentile"

    again = optimized(load_plan=tmp_path / "plan.json")

    assert again.record.ranges == "percentile"
