"""Lower precision under a metric of the user's: real libraries, and labels that the model itself makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

import collage
from collage.control.metric import Values
from collage.decide.decision import decide
from collage.errors import PrecisionError
from collage.measure.driver.source import MeasuringCostSource
from collage.precision.plans.drops import Drops
from collage.precision.plans.plan_runs import PlanRuns
from collage.report.text.accuracy import metric_line
from collage_core.contract import Cost, Unmeasured
from collage_core.errors import CollageError
from collage_core.fusion import CandidateKernel
from collage_testing import GraphBuilder

pytestmark = pytest.mark.plugins("openvino")

CLASSES, ROWS, SAMPLES = 64, 64, 8
RANGE = 16
METRIC = """
import numpy as np

def accuracy(outputs, samples):
    hits = [out["identity_0"].argmax(-1) == sample["label"] for out, sample in zip(outputs, samples)]
    return 100 * float(np.mean(hits))

def fails(outputs, samples):
    raise ValueError("no such label")
"""


def net() -> onnx_ir.Model:
    """Six layers, the first of which reads numbers whose size differs by a factor of 16: 8 bits lose the small."""
    g = GraphBuilder("net")
    value = g.input("x", ROWS, CLASSES)
    for number in range(6):
        weight = np.random.default_rng(number).normal(size=(CLASSES, CLASSES)).astype(np.float32) / 6
        if number == 0:
            weight[0] /= RANGE
        value = g.op("MatMul", value, g.constant(f"w{number}", weight))
        value = g.op("Tanh", value) if number < 5 else value
    return g.model(g.op("Identity", value))


def samples() -> list[dict[str, Any]]:
    """Rows with the class that the model finds in them."""
    rng, found = np.random.default_rng(1), []
    session = collage.optimize(net(), toolchains="openvino", preset="quick", tuning_db="memory:").session()
    for _ in range(SAMPLES):
        x = rng.normal(size=(ROWS, CLASSES)).astype(np.float32)
        x[:, 0] *= RANGE
        [logits] = session.run(None, {"x": x})
        found.append({"x": x, "label": np.asarray(logits).argmax(-1)})
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The place of the metric, and of a database that all tests share."""
    return tmp_path_factory.mktemp("metric")


@pytest.fixture(scope="module")
def labelled() -> list[dict[str, Any]]:
    return samples()


@pytest.fixture(autouse=True)
def integers_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a plan in 8-bit integers be measured as faster, and win the race, whatever the machine says."""
    cost = MeasuringCostSource.cost

    def cheap(self: MeasuringCostSource, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        known = cost(self, candidate, confirmed=confirmed)
        eight = len(candidate.sub_graph.int8)
        return known if isinstance(known, Unmeasured) or candidate.target.exact else known / (1000 + 100 * eight)

    def in_int8(contenders: Any, seed: int, **others: Any) -> Any:
        decision = decide(contenders, seed, **others)
        named = [each.name for each in contenders if "int8" in each.name or each.name == "mixed-precision"]
        return dataclasses.replace(decision, winner=named[-1]) if named else decision

    monkeypatch.setattr(MeasuringCostSource, "cost", cheap)
    monkeypatch.setattr("collage.decide.kept.decide", in_int8)


def optimized(
    folder: Path, labelled: list[dict[str, Any]], max_drop: float, name: str = "accuracy", **more: Any
) -> Any:
    (folder / "metric.py").write_text(METRIC)
    return collage.optimize(
        net(),
        toolchains="openvino,openvino(precision=int8)",
        preset="quick",
        max_drop=max_drop,
        labelled=labelled,
        tuning_db=str(folder / "tuning.sqlite"),
        **{"metric": f"{folder / 'metric.py'}:{name}", **more},
    )


def eight_of(record: Any) -> int:
    return sum(len(region.precision.int8) for region in record.regions if region.precision is not None)


def accuracy(package: Any, of: Sequence[Values]) -> float:
    """Compute the metric once more, by a session of the finished plan."""
    session = package.session()
    hits = [session.run(None, {"x": each["x"]})[0].argmax(-1) == each["label"] for each in of]
    return 100 * float(np.mean(hits))


@pytest.mark.slow
def test_the_drop_on_samples_that_are_held_out_is_what_is_allowed_and_what_the_package_has(
    folder: Path, labelled: list[dict[str, Any]]
) -> None:
    found = optimized(folder, labelled, max_drop=4.0)
    metric = found.record.metric

    assert metric is not None
    assert (metric.name, metric.samples, metric.held_out) == ("accuracy", SAMPLES // 2, True)
    assert metric.of_model == 100.0
    assert metric.of_plan == pytest.approx(accuracy(found, labelled[1::2]))
    assert metric.drop <= 4.0
    assert 0 < eight_of(found.record) < 6, "all six drop by more"
    assert "4 samples that decided nothing" in metric_line(metric)


@pytest.mark.slow  # three searches
def test_the_more_may_be_lost_the_more_is_quantised(folder: Path, labelled: list[dict[str, Any]]) -> None:
    counts = [eight_of(optimized(folder, labelled, max_drop=most).record) for most in (0.0, 4.0, 100.0)]

    assert counts[0] <= counts[1] < counts[2] == 6


@pytest.mark.slow
def test_a_plan_that_drops_on_held_out_samples_only_is_searched_again(
    folder: Path, labelled: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = Drops.value
    tried: list[int] = []

    def worse(self: Drops, plan: Any, *, held_out: bool) -> float:
        eight = sum(len(kernel.sub_graph.int8) for kernel in plan.kernels)
        if held_out and eight:
            tried.append(eight)
        return value(self, plan, held_out=held_out) - (50.0 if held_out and eight > 3 else 0.0)

    monkeypatch.setattr(Drops, "value", worse)

    found = optimized(folder, labelled, max_drop=4.0)

    assert tried[0] > 3 >= eight_of(found.record)
    assert any("drops by" in note and "searched again" in note for note in found.record.notes)
    assert found.record.metric.drop <= 4.0


@pytest.mark.slow
def test_the_next_run_computes_no_metric(
    folder: Path, labelled: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = optimized(folder, labelled, max_drop=4.0)

    def never(*_: Any) -> float:
        raise AssertionError("the tuning database knows it")

    monkeypatch.setattr(Drops, "_computed", never)
    second = optimized(folder, labelled, max_drop=4.0)

    assert second.record.metric == first.record.metric


@pytest.mark.slow
def test_a_plan_of_the_users_is_held_to_the_metric(
    folder: Path, labelled: list[dict[str, Any]], tmp_path: Path
) -> None:
    optimized(folder, labelled, max_drop=100.0).save_plan(tmp_path / "plan.json")

    found = optimized(folder, labelled, max_drop=50.0, load_plan=tmp_path / "plan.json")
    assert eight_of(found.record) == 0, "nothing was explored, so nobody knows which product does what"
    assert 0 < found.record.metric.drop <= 50.0

    with pytest.raises(CollageError, match=r"drops by .* in accuracy on samples that are held out, and 1 is allowed"):
        optimized(folder, labelled, max_drop=1.0, load_plan=tmp_path / "plan.json")


@pytest.mark.slow
def test_pinned_kernels_are_held_to_the_metric(folder: Path, labelled: list[dict[str, Any]]) -> None:
    found = optimized(folder, labelled, max_drop=1.0, pins=("*=openvino",)).record

    assert found.metric is not None
    assert found.metric.drop <= 1.0
    assert not any("was not computed" in note or "cannot be computed" in note for note in found.notes)


@pytest.mark.slow
def test_where_the_model_does_not_run_in_its_own_types_nothing_of_lower_precision_is_kept(
    folder: Path, labelled: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: PlanRuns, plan: Any, inputs: Any) -> Any:
        raise PrecisionError("no memory")

    monkeypatch.setattr(PlanRuns, "outputs", never)

    found = optimized(folder, [*labelled, *labelled], max_drop=90.0).record

    assert all("int8" not in region.target for region in found.regions)
    assert any("lower precision was not looked at: accuracy cannot be computed" in note for note in found.notes)


@pytest.mark.slow
def test_a_plan_whose_metric_is_nan_is_not_kept(folder: Path, labelled: list[dict[str, Any]]) -> None:
    plain = optimized(folder, labelled, max_drop=0.0).session()
    exact = [plain.run(None, {"x": each["x"]})[0] for each in labelled]

    def of_the_model_only(outputs: Sequence[Values], samples: Sequence[Values]) -> float:
        made = [each["identity_0"] for each in outputs]
        near = all(any(np.abs(out - own).max() < 1e-4 for own in exact) for out in made)
        return 1.0 if near else np.nan

    found = optimized(folder, labelled, max_drop=10.0, metric=of_the_model_only).record

    assert eight_of(found) == 0
    assert any("drops by inf in of_the_model_only" in note for note in found.notes)


def test_a_metric_that_fails_ends_the_run_with_its_own_words(folder: Path, labelled: list[dict[str, Any]]) -> None:
    with pytest.raises(
        CollageError,
        match="metric 'fails' cannot be computed: it raised ValueError: no such label",
    ):
        optimized(folder, labelled, max_drop=1.0, name="fails")
