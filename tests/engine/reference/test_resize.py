"""Resize against ONNX's own implementation: all modes, coordinates, types and ways of giving sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from collage.reference.kernels.resize import COORDINATES
from tests.engine.reference.test_kernels import assert_equal, floats, kernel, oracle

LIMIT = 2e-5
"""Cubic weights are negative too: a result may be smaller than what it is the sum of, which is rounded to float32."""


@pytest.fixture
def reject_near_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reject cases with a position that rounding has moved off an integer by less than a billionth.

    There ONNX's evaluator weighs the neighbours of one position as those of another: it adds padding to the position
    before it looks for the neighbours, which rounds once more, and not before it computes their weights.

    And reject those where another element is nearest to a position in float32 than to that in float64.
    """

    def rejecting(compute: Any) -> Any:
        def positions(at: Any, *arguments: Any) -> Any:
            result, wide = compute(at, *arguments), compute(at.astype(np.float64), *arguments)
            for step in (np.floor, np.ceil):
                assume(np.array_equal(step(2 * result), step(2 * wide)))
            assume(not np.any((result != np.rint(result)) & (abs(result - np.rint(result)) < 1e-9)))
            return result

        return positions

    for name, compute in COORDINATES.items():
        monkeypatch.setitem(COORDINATES, name, rejecting(compute))


@st.composite
def resizing(draw: st.DrawFn) -> tuple[list[Any], dict[str, Any]]:
    """Inputs and attributes of a Resize."""
    size = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    factors = draw(st.lists(st.sampled_from([0.5, 0.7, 1.0, 1.5, 2.0, 3.3]), min_size=len(size), max_size=len(size)))
    mode = draw(st.sampled_from(["nearest", "linear", "cubic"]))
    coordinates = draw(st.sampled_from(sorted(COORDINATES)))
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": coordinates}
    if mode == "nearest":
        rounding = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = draw(st.sampled_from(rounding))
    elif draw(st.booleans()):
        attributes["antialias"] = 1
    if mode == "cubic" and draw(st.booleans()):
        attributes["cubic_coeff_a"] = -0.5
    if mode != "nearest":
        attributes["exclude_outside"] = int(draw(st.booleans()))
    x = floats(len(size), 1, 2, *size)
    if draw(st.booleans()):
        x = np.clip(x * 100 + 100, 0, 255).astype(np.uint8)
    roi = None
    if coordinates == "tf_crop_and_resize":
        edges = draw(st.lists(st.sampled_from([-0.3, 0.0, 0.2, 0.5, 1.0, 1.4]), min_size=2, max_size=2))
        roi = np.array([0, 0, *[edges[0]] * len(size), 1, 1, *[edges[1]] * len(size)], np.float32)
        attributes["extrapolation_value"] = 7.0
    scales = np.array([1, 1, *factors], np.float32)
    sizes = np.array([max(1, int(n * s)) for n, s in zip(x.shape, scales, strict=True)])
    if any(int(n * s) == 0 for n, s in zip(x.shape, scales, strict=True)) or draw(st.booleans()):
        attributes["keep_aspect_ratio_policy"] = draw(st.sampled_from(["stretch", "not_larger", "not_smaller"]))
        return [x, roi, None, sizes], attributes
    return [x, roi, scales], attributes


@pytest.mark.usefixtures("reject_near_misses")
@given(resizing())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_resize(case: tuple[list[Any], dict[str, Any]]) -> None:
    inputs, attributes = case

    found, expected = kernel("Resize", inputs, **attributes), oracle("Resize", inputs, **attributes)

    if inputs[0].dtype == np.uint8 and attributes["mode"] != "nearest":  # what is halfway is rounded up or down
        assert found[0].dtype == np.uint8
        np.testing.assert_allclose(found[0].astype(int), expected[0].astype(int), rtol=0, atol=1)
    else:
        assert_equal(found, expected, LIMIT)


@pytest.mark.usefixtures("reject_near_misses")
@given(
    size=st.integers(1, 700),
    wanted=st.integers(1, 700),
    mode=st.sampled_from(["linear", "cubic"]),
    antialias=st.booleans(),
    last=st.booleans(),
)
@example(size=700, wanted=3, mode="cubic", antialias=True, last=True)
@example(size=3, wanted=700, mode="linear", antialias=False, last=False)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_resize_by_blocks_of_rows(size: int, wanted: int, mode: str, antialias: bool, last: bool) -> None:
    shape, out = ((2, size), (2, wanted)) if last else ((size, 2), (wanted, 2))
    inputs = [floats(0, *shape), None, None, np.array(out)]
    attributes: dict[str, Any] = {"mode": mode, "antialias": int(antialias)}

    assert_equal(kernel("Resize", inputs, **attributes), oracle("Resize", inputs, **attributes), LIMIT)


def test_resize_of_given_axes() -> None:
    x = floats(0, 2, 3, 4, 5)
    inputs = [x, None, None, np.array([8, 7])]

    result = kernel("Resize", inputs, mode="linear", axes=[3, 1])

    assert result[0].shape == (2, 7, 4, 8)
    everywhere = oracle("Resize", [x, None, None, np.array([2, 7, 4, 8])], mode="linear")
    assert_equal(result, everywhere)


@pytest.mark.parametrize(
    ("inputs", "attributes"),
    [
        ([floats(0, 1, 4), np.array([1, 2], np.float32)], {}),
        (
            [floats(0, 1, 4), None, np.array([1, 2], np.float32)],
            {"coordinate_transformation_mode": "tf_half_pixel_for_nn"},
        ),
    ],
    ids=["of opset 10", "of opset 11 alone"],
)
def test_what_a_later_standard_has_no_more_is_left_to_onnx(inputs: list[Any], attributes: dict[str, Any]) -> None:
    assert kernel("Resize", inputs, **attributes) is NotImplemented
