"""What rounding may do to each element of a tensor is measured, and neither more nor much less is allowed."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.reference import Evaluation, discrepancy_of, evaluate
from collage.reference.conditioning import Conditioning, conditioning_of
from collage.reference.evaluator import NodeEvaluator
from collage.reference.perturbed import PerturbedRun

RANDOM = np.random.default_rng(7)


def run(nodes: str, output: str = "float y", **inputs: Any) -> Evaluation:
    """Evaluate nodes over the given inputs, conditioned; element types are those of the arrays."""
    kinds = {name: ir.DataType.from_numpy(np.asarray(value).dtype).name.lower() for name, value in inputs.items()}
    listed = ", ".join(f"{kinds[name]}{list(np.shape(value))} {name}" for name, value in inputs.items())
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({listed}) => ({output}) {{ {nodes} }}'
    model = ir.from_onnx_text(text)
    return evaluate(model, {name: np.asarray(value) for name, value in inputs.items()}, conditioned=True)


def numbers(*shape: int, scale: float = 1.0) -> Any:
    return (RANDOM.standard_normal(shape) * scale).astype(np.float32)


def beyond(evaluation: Evaluation, actual: Any, name: str = "y") -> int:
    return discrepancy_of(actual, evaluation.values[name], evaluation.conditioning[name]).beyond


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_products_summed_in_any_order_are_correct_and_a_lost_term_is_not(rows: int, terms: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    a = random.standard_normal((rows, terms)).astype(np.float32)
    b = random.standard_normal((terms, 5)).astype(np.float32)
    found = run("y = MatMul(a, b)", a=a, b=b)
    order = random.permutation(terms)
    one_by_one = np.zeros((rows, 5), np.float32)
    for term in order:  # the least exact order there is
        one_by_one += a[:, term, None] * b[None, term]

    assert beyond(found, one_by_one) == 0
    assert beyond(found, (a.astype(np.float64) @ b).astype(np.float32)) == 0

    lost = found.values["y"].copy()
    place = int(random.integers(terms))
    lost[-1] -= a[-1, place] * b[place]
    right = np.abs(a[-1, place] * b[place]) > 1e-3 * np.sqrt(terms)
    assert beyond(found, lost) >= np.count_nonzero(right)


def test_a_sum_of_many_terms_is_held_to_what_the_best_order_makes_of_them() -> None:
    a, b = np.abs(numbers(8, 1024)), np.abs(numbers(1024, 8))
    found = run("y = MatMul(a, b)", a=a, b=b)

    assert beyond(found, found.values["y"] * np.float32(1 + 1e-4)) == 64


def test_an_image_is_held_to_the_rounding_of_its_coordinates() -> None:
    x = numbers(1, 1, 16, 16)
    found = run('y = Resize<mode = "linear">(x, , scales)', x=x, scales=np.array([1, 1, 2, 2], np.float32))

    assert beyond(found, found.values["y"] + np.float32(1e-3)) == 1024


@pytest.mark.guards(
    "a mask of -1e9 beside wrong numbers", "each element is held to what rounding does to it", area="toolchains"
)
def test_a_mask_says_nothing_about_the_numbers_beside_it() -> None:
    x = numbers(40, 100)
    mask = np.zeros((1, 100), np.float32)
    mask[0, 3] = -1e9
    found = run("s = Mul(x, x) y = Add(s, mask)", x=x, mask=mask)
    wrong = found.values["y"].copy()
    wrong[:, :3] += 0.5

    assert beyond(found, wrong) == 120
    assert discrepancy_of(wrong, found.values["y"], found.conditioning["y"]).error > 0.01
    moved = found.values["y"].copy()
    moved[:, 3] *= 1.001
    assert beyond(found, moved) == 40


@pytest.mark.guards(
    "attention with a mask of minus infinity", "rounding is allowed for as without the mask", area="toolchains"
)
def test_a_mask_of_minus_infinity_leaves_the_noise_of_what_it_does_not_hide() -> None:
    scores = numbers(16, 64, scale=3.0)
    mask = np.zeros((1, 64), np.float32)
    mask[0, 60:] = -np.inf
    nodes = "m = Mul(x, x) s = Add(m, mask) y = Softmax(s)"
    hidden, seen = run(nodes, x=scores, mask=mask), run(nodes, x=scores[:, :60], mask=mask[:, :60])

    expected = seen.values["y"]
    allowed = hidden.conditioning["y"].tolerance(expected) / seen.conditioning["y"].tolerance(expected)

    assert 0.5 < np.median(allowed) < 2.0
    assert np.all(hidden.values["y"][:, 60:] == 0)


def test_a_small_element_is_held_to_the_noise_of_what_it_was_computed_from() -> None:
    x = numbers(1000)
    x[17] = 1e-6
    product = run("y = Mul(x, x)", x=x)
    wrong = product.values["y"].copy()
    wrong[17] *= 1.01
    assert beyond(product, wrong) == 1

    total = run("y = Sub(x, x2)", x=x, x2=np.roll(x, 1))
    other = total.values["y"].copy()
    other[5] += 2e-7  # the rounding of the terms, whatever their difference
    assert beyond(total, other) == 0


@pytest.mark.guards("all that is left of an output is rounding", "right toolchains are accepted", area="toolchains")
def test_the_largest_element_is_not_held_to_a_noise_that_is_small_by_chance() -> None:
    expected = np.append(np.linspace(1.0, 1.9, 1000), [2.1, 2.0**30])
    perturbed = expected + np.append(np.full(1000, 1e-4), [0.0, 0.0])
    allowed = conditioning_of(expected, perturbed).tolerance(expected)

    assert allowed[1000] == allowed[0]
    assert allowed[1001] == 16 * 2.0**-24 * 2.0**30, "far from all others: its own rounding"


def test_much_larger_elements_say_nothing_of_small_ones() -> None:
    expected = np.repeat([1.5, 3 * 2.0**20], 100)
    perturbed = expected + np.repeat([1e-4, 100.0], 100)
    allowed = conditioning_of(expected, perturbed).tolerance(expected)

    assert allowed[0] == pytest.approx(16e-4)
    assert allowed[-1] == pytest.approx(1600.0)


def test_a_zero_is_exact_where_nothing_is_summed() -> None:
    x = numbers(1000)
    x[5] = 0.0
    found = run("y = Mul(x, x)", x=x)
    wrong = found.values["y"].copy()
    wrong[5] = 1e-7

    assert beyond(found, wrong) == 1


def test_what_is_nothing_but_rounding_has_no_error() -> None:
    x = numbers(50, 200)
    found = run("p = Softmax(x) s = ReduceSum<keepdims = 0>(p, axes) y = Sub(s, one)", x=x, axes=[1], one=np.float32(1))
    other = found.values["y"] + np.float32(1.2e-7) * RANDOM.choice([-1, 0, 1], 50).astype(np.float32)

    verdict = discrepancy_of(other, found.values["y"], found.conditioning["y"])

    assert (verdict.error, verdict.beyond) == (0.0, 0)
    assert beyond(found, found.values["y"] + np.float32(1e-3)) == 50


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_round_more(dtype: Any) -> None:
    a, b = numbers(20, 64).astype(dtype), numbers(64, 20).astype(dtype)
    found = run("y = MatMul(a, b)", output=f"{np.dtype(dtype).name} y", a=a, b=b)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    unit = found.conditioning["y"].unit

    assert beyond(found, exact.astype(dtype)) == 0
    large = np.abs(exact) > found.conditioning["y"].scale / 3
    assert beyond(found, np.where(large, exact * (1 + 64 * unit), exact).astype(dtype)) == np.count_nonzero(large)


@pytest.mark.guards(
    "a long sum of float16 that a toolchain adds up in float16", "it is refused: sums have 32 bits", area="toolchains"
)
def test_sums_of_sixteen_bits_are_kept_in_thirty_two() -> None:
    a, b = np.abs(numbers(4, 8192)).astype(np.float16), np.abs(numbers(8192, 4)).astype(np.float16)
    found = run("y = MatMul(a, b)", output="float16 y", a=a, b=b)
    sums = np.zeros((4, 4), np.float16)
    for term in range(8192):
        sums += a[:, term, None] * b[None, term]

    assert beyond(found, (a.astype(np.float64) @ b).astype(np.float16)) == 0
    assert beyond(found, sums) == 16


@pytest.mark.guards(
    "a model of float16 whose outputs are float32", "its outputs are held to what float16 rounds", area="toolchains"
)
def test_what_is_computed_from_sixteen_bits_is_held_to_their_rounding() -> None:
    x, layers = numbers(30, 512), [numbers(512, 512, scale=512**-0.5).astype(np.float16) for _ in range(5)]
    names = [f"w{number}" for number in range(len(layers))]
    nodes, before = "", "h"
    for number, name in enumerate(names):
        nodes += f"m{number} = MatMul({before}, {name}) h{number} = Relu(m{number}) "
        before = f"h{number}"
    found = run(
        f"h = Cast<to = 10>(x) {nodes} y = Cast<to = 1>({before})", x=x, **dict(zip(names, layers, strict=True))
    )
    wide = x.astype(np.float16).astype(np.float32)
    for layer in layers:
        wide = np.maximum(wide @ layer.astype(np.float32), 0)

    assert discrepancy_of(wide, found.values["y"], found.conditioning["y"]).error > 1e-4
    assert beyond(found, wide) == 0, "float32 between the layers is as correct"
    for wrong in (np.zeros_like(wide), wide * np.float32(1.05), wide[:, ::-1]):
        assert beyond(found, wrong) > wide.size / 4


def test_the_scale_leaves_out_masks_and_what_is_no_number() -> None:
    values = np.concatenate([np.linspace(0, 2, 1000), np.full(100, -3e38), [np.nan, np.inf]]).astype(np.float32)

    found = conditioning_of(values)

    assert found.scale == pytest.approx(2.0, rel=1e-2)
    assert found.sentinel is not None
    assert 1e4 < found.sentinel < 3e38


def test_a_few_large_elements_are_not_the_scale() -> None:
    found = conditioning_of(np.array([1.0] * 10_000 + [100.0] * 5, np.float32))

    assert found.sentinel is None
    assert found.scale == 1.0


def test_large_numbers_that_most_elements_have_are_no_masks() -> None:
    found = conditioning_of(np.array([1e-6] * 10 + [1e3] * 90, np.float32))

    assert found.sentinel is None
    assert found.scale == 1e3


def test_magnitudes_that_were_not_seen_are_allowed_in_proportion() -> None:
    known = Conditioning(octaves=(0, 3), noise=(1e-7, 1e-6), zero_noise=1e-8)

    small, between, large, zero = known.tolerance(np.array([1e-3, 2.0, 4096.0, 0.0])) / 16

    assert (small, zero) == (1e-7, 1e-8)
    assert between == pytest.approx(1e-6)
    assert large == pytest.approx(1e-6 * 2**10)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_elements_move_in_blocks_as_they_would_all_at_once(dtype: Any) -> None:
    elements = RANDOM.standard_normal((11, 100_000)).astype(dtype)  # more than there are signs
    elements[0, 7], elements[10, 99_999], elements[10, 500] = np.nan, np.inf, -np.inf
    perturbed = PerturbedRun(ir.Graph([], [], nodes=[]), NodeEvaluator({"": 21}, {}))

    moved = perturbed._moved(elements, lambda some: np.abs(some) * 0.25)

    signs = np.resize(perturbed._signs[: len(perturbed._signs) // 2], elements.shape)
    with np.errstate(invalid="ignore"):
        wanted = (elements + np.abs(elements) * 0.25 * signs).astype(dtype)
    np.testing.assert_array_equal(moved, np.where(np.isfinite(elements), wanted, elements), strict=True)
    assert set(np.unique(signs)) == {-1.0, 1.0}


def test_choices_of_the_reference_stand_in_its_second_run() -> None:
    logits = np.zeros((4, 30), np.float32)
    logits[:, 7] = 1e-8  # which rounding decides
    found = run(
        "s = Mul(x, x2) i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(t, i)",
        x=logits + 1,
        x2=numbers(1, 1) * np.ones((4, 30), np.float32),
        t=numbers(30, 8),
    )

    assert max(found.conditioning["y"].noise) < 1e-5  # not the difference of two rows
    assert found.conditioning["y"].undecided > 0.1


def test_what_the_standard_leaves_open_for_nan_is_undecided() -> None:
    x = np.array([[np.nan, 1.0], [2.0, 3.0]], np.float32)

    found = run("y = ReduceMax<keepdims = 0>(x, axes)", x=x, axes=[1])

    assert found.conditioning["y"].undecided == 0.5


@pytest.mark.filterwarnings("ignore:divide by zero encountered")
def test_a_division_of_integers_by_zero_is_undecided() -> None:
    found = run("y = Div(a, b)", output="int64 y", a=[4, 9, 3], b=[2, 0, 3])

    assert found.conditioning["y"].undecided == pytest.approx(1 / 3)
