"""What is asked of kernels, by whether they compute in the model's own types."""

from __future__ import annotations

import dataclasses

import pytest

from collage.measure.driver.settings import KERNEL_ERROR, MeasureSettings
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage_core.contract import Joins, Target

EXACT = Target(toolchain="t", fingerprint="t 1")
LOWER = Target(toolchain="t", options=(("precision", "int8"),), fingerprint="t 1", joins=Joins.ANY, exact=False)
LIBRARY = Target(toolchain="t", options=(("precision", "fp16"),), fingerprint="t 1", exact=False)


@pytest.mark.parametrize(("allowed", "of_kernels"), [(0.02, KERNEL_ERROR), (0.7, 0.7)])
def test_a_kernel_that_is_chosen_under_a_bound_may_be_half_of_the_scale_off_and_no_more(
    allowed: float, of_kernels: float
) -> None:
    settings = MeasureSettings(
        build=BuildSettings(threads=1),
        by_region=True,
        tolerance=Tolerance(relative=1e-4, mismatched=1e-4),
        inexact_tolerance=Tolerance(relative=allowed, mismatched=allowed),
        inexact_kernel_tolerance=Tolerance(relative=0.01, mismatched=0.01),
    )

    assert KERNEL_ERROR == 0.5
    assert settings.limits(EXACT).tolerance == settings.tolerance
    assert settings.limits(LOWER).tolerance == Tolerance(relative=of_kernels, mismatched=of_kernels)
    assert settings.limits(LIBRARY).tolerance == settings.inexact_kernel_tolerance
    pinned = dataclasses.replace(settings, by_region=False)
    assert pinned.limits(LOWER).tolerance == settings.inexact_kernel_tolerance
