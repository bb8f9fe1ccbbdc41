"""The kernel that makes a saved plan wrong is found by running the plan in parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import onnx_ir
import pytest

from collage.build.verifying.wrong_kernel import PlanTrial
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import BuildSettings, Stage, Tolerance
from collage.reference import Evaluation, evaluate
from tests.integration.wrong_in_plans.models import chain, product
from tests.integration.wrong_in_plans.plans import SLY, STEADY, Plans, SavedPlan

USUAL: Final = Tolerance()
LARGER: Final = Tolerance(relative=1.1e-3)
"""An error that a user asks for: kernels need not be correct, and those that are off `a little` keep to it."""


def evaluated(model: onnx_ir.Model, inputs: Mapping[str, Any], names: Collection[str]) -> Evaluation:
    return evaluate(model, inputs, keep=frozenset(names).__contains__, conditioned=True)


def trial(plans: Plans, saved: SavedPlan, budget: Budget = UNLIMITED, *, tolerance: Tolerance = USUAL) -> PlanTrial:
    return PlanTrial(
        saved.assembled,
        saved.package,
        saved.inputs,
        store=BlobStore(plans.folder / "blobs"),
        folder=plans.folder,
        threads=1,
        settings=MeasureSettings(build=BuildSettings(threads=1), tolerance=tolerance),
        reference=evaluated,
        budget=budget,
    )


def test_a_kernel_that_is_wrong_by_itself_is_found(plans: Plans) -> None:
    found = trial(plans, plans.plan("value V", chain(), relu_0=SLY, sigmoid_0=SLY, tanh_0=SLY)).wrong_kernel()

    assert found is not None
    assert (found.site, found.kernel.sub_graph.names, found.failure.stage) == ("k0000", ("relu_0",), Stage.CHECK)
    assert found.failure.reason.startswith("wrong numbers on fresh inputs: output ")


def test_a_kernel_that_is_wrong_beside_others_is_found_with_the_fewest_of_them(plans: Plans) -> None:
    found = trial(plans, plans.plan("third", chain(), relu_0=SLY, sigmoid_0=SLY, tanh_0=SLY)).wrong_kernel()

    assert found is not None
    assert found.site == "k0000"
    company = "beside sly (sigmoid_0) and sly (tanh_0) in one process"
    assert found.failure.reason.startswith(f"wrong numbers {company}: output ")


@pytest.mark.parametrize(("way", "why"), [("fails", "it cannot run this"), ("ends", "exited with status 7")])
def test_a_kernel_that_stops_the_plan_is_found(way: str, why: str, plans: Plans) -> None:
    tried = trial(plans, plans.plan(f"{way} V", chain(), relu_0=SLY, sigmoid_0=STEADY, tanh_0=STEADY))

    found = tried.stopping_kernel()

    assert found is not None
    assert (found.site, found.failure.stage) == ("k0000", Stage.RUN)
    assert found.failure.reason.startswith("it does not run on fresh inputs: ")
    assert why in found.failure.reason


def test_errors_that_add_up_are_told_from_a_wrong_kernel(plans: Plans) -> None:
    tried = trial(plans, plans.plan("a little", chain(), relu_0=STEADY, sigmoid_0=SLY, tanh_0=SLY), tolerance=LARGER)

    assert tried.wrong_kernel() is None
    assert tried.too_far(chain()).startswith(
        "each kernel is right, but errors add up; first too far: sly on tanh_0 (k0002), output "
    )


def test_nothing_is_found_in_a_right_plan(plans: Plans) -> None:
    tried = trial(plans, plans.plan("", product(), mul_0=STEADY, relu_0=SLY))

    assert tried.wrong_kernel() is None
    assert tried.stopping_kernel() is None
    assert tried.too_far(product()) == ""


def test_nothing_runs_when_the_time_for_looking_is_over(plans: Plans) -> None:
    tried = trial(plans, plans.plan("value V", chain(), relu_0=SLY, sigmoid_0=SLY, tanh_0=SLY), Budget.begin(0.0))

    assert tried.wrong_kernel() is None
    assert tried.stopping_kernel() is None
    assert tried.too_far(chain()) == ""
    assert not (plans.folder / "parts-given.json").exists()
