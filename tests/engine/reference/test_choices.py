"""A choice is right if values within tolerance lead to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from collage.reference import evaluate
from collage.reference.choices import is_moved
from collage.reference.judge import Judge

RANDOM = np.random.default_rng(11)
CLASSES = 30


def judged(nodes: str, outputs: str, made: Any, **inputs: Any) -> str:
    """Return what is wrong with the first output, `y`, of nodes over the inputs."""
    kinds = {name: ir.DataType.from_numpy(np.asarray(value).dtype).name.lower() for name, value in inputs.items()}
    listed = ", ".join(f"{kinds[name]}{list(np.shape(value))} {name}" for name, value in inputs.items())
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> g ({listed}) => ({outputs}) {{ {nodes} }}')
    model = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(ir.serde.serialize_model(model)))
    run = evaluate(model, {name: np.asarray(value) for name, value in inputs.items()}, conditioned=True)
    made = made(run.values) if callable(made) else made

    def between(value: ir.Value) -> Any:
        name = str(value.name)
        return run.values[name], None if name in inputs else run.conditioning.get(name)

    judge = Judge(model.graph, correct=True, relative=1e-3, mismatched=0.0, behind=between)
    return judge.verdict("y", made, run.values["y"], run.conditioning["y"]).problem


def tied(rows: int) -> Any:
    """Scores that are alike but for rounding, except class 3, which is clearly worse."""
    scores = np.full((rows, CLASSES), 1.0, np.float32) + RANDOM.uniform(-1e-7, 1e-7, (rows, CLASSES))
    scores[:, 3] = 0.9
    return scores.astype(np.float32)


SCORES = "s = Mul(x, w)"
WEIGHT = np.full((1, CLASSES), 1.37, np.float32)


@pytest.mark.guards(
    "right toolchains choose otherwise where scores tie",
    "accepted if the value behind the choice is as good as the best; a clearly worse one is not",
    area="toolchains",
)
@pytest.mark.parametrize(
    "moved",
    ["y = Identity(i)", "y = Reshape(i, shape)", "f = Cast<to = 6>(i) y = Cast<to = 7>(f)", "y = Transpose(i)"],
)
def test_any_of_the_best_is_right_and_one_that_is_clearly_worse_is_not(moved: str) -> None:
    nodes = f"{SCORES} i = ArgMax<axis = 1>(s) {moved}"
    inputs = {"x": tied(64), "w": WEIGHT, "shape": np.array([-1])}
    shape = {"R": (64,), "T": (1, 64)}.get(moved[4], (64, 1))
    others = RANDOM.choice([0, 1, 2, 4, 17, 29], shape)

    assert judged(nodes, "int64 y", others, **inputs) == ""
    others.reshape(-1)[5] = 3
    assert "1 by more than rounding explains" in judged(nodes, "int64 y", others, **inputs)
    others.reshape(-1)[5] = CLASSES
    assert "1 by more than rounding explains" in judged(nodes, "int64 y", others, **inputs)


@pytest.mark.parametrize("conditioned", [False, True])
def test_a_score_that_is_masked_is_never_right(conditioned: bool) -> None:
    nodes = "t = Mul(x, w) s = Where(m, t, low) y = ArgMax(s) z = Greater(s, low)"
    kinds = "bool[4] m, float[4] x, float[4] w, float low"
    text = f'<ir_version: 10, opset_import: ["" : 21]> g ({kinds}) => (int64[1] y, bool[4] z) {{ {nodes} }}'
    model = ir.from_onnx_text(text)
    model = ir.serde.deserialize_model(onnx.shape_inference.infer_shapes(ir.serde.serialize_model(model)))
    x, mask = np.array([1, 2, 9, 3], np.float32), np.array([True, True, False, True])
    feeds = {"m": mask, "x": x, "w": np.full(4, 1.5, np.float32), "low": np.float32(-np.inf)}
    run = evaluate(model, feeds, conditioned=conditioned)
    judge = Judge.over(model.graph, run, correct=True, relative=1e-3, mismatched=0.0)

    def problem(name: str, made: Any) -> str:
        return judge.verdict(name, made, run.values[name], run.conditioning.get(name)).problem

    assert problem("y", np.array([3])) == problem("z", mask) == ""
    assert "1 by more than rounding explains" in problem("y", np.array([2]))
    assert "3 by more than rounding explains" in problem("z", np.zeros(4, bool))


def test_what_only_moves_is_as_exact_as_what_is_given() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[4] x, int64[2] to) => (float[2, 2] z) '
    model = ir.from_onnx_text(text + "{ s = Reshape(x, to) y = Transpose(s) z = Neg(y) }")
    x, values = model.graph.inputs[0], {str(node.outputs[0].name): node.outputs[0] for node in model.graph}

    moved = {name for name, value in values.items() if is_moved(value, lambda each: each is x)}

    assert moved == {"s", "y"}
    assert is_moved(x, lambda each: each is x)
    assert not is_moved(x, lambda each: False)


@pytest.mark.parametrize("mask", [[], [-1e9] * 4, [-100.0] * 4])
def test_scores_of_which_nothing_is_known_but_their_size_are_not_exact(mask: list[float]) -> None:
    """As where memory did not do for the second run; masks do not make everything alike."""
    x = np.hstack([tied(64), np.full((64, len(mask)), mask, np.float32)])
    weight = np.full((1, x.shape[1]), 1.37, np.float32)
    kinds = f"float[64, {x.shape[1]}] x, float[1, {x.shape[1]}] w"
    nodes = f"{{ {SCORES} y = ArgMax<axis = 1>(s) }}"
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> g ({kinds}) => (int64[64, 1] y) {nodes}')
    run = evaluate(model, {"x": x, "w": weight})
    judge = Judge.over(model.graph, run, correct=True, relative=1e-3, mismatched=0.0)
    others = RANDOM.choice([0, 1, 2, 4, 17, 29], (64, 1))

    assert run.conditioning == {}
    assert judge.verdict("y", others, run.values["y"], None).problem == ""
    others[5] = 3
    assert "1 by more than rounding explains" in judge.verdict("y", others, run.values["y"], None).problem


def test_the_second_best_is_wrong_by_a_margin_that_rounding_does_not_make() -> None:
    x = tied(64)
    x[:, 3] = 1 - 5e-5
    nodes = f"{SCORES} y = ArgMax<axis = 1>(s)"

    assert judged(nodes, "int64 y", np.full((64, 1), 5), x=x, w=WEIGHT) == ""
    assert "64 by more than rounding explains" in judged(nodes, "int64 y", np.full((64, 1), 3), x=x, w=WEIGHT)


def test_the_right_choices_of_another_type_are_wrong() -> None:
    made = judged(f"{SCORES} y = ArgMax<axis = 1>(s)", "int64 y", np.zeros((64, 1), np.int32), x=tied(64), w=WEIGHT)

    assert made == "type is int32 instead of int64"


def test_what_follows_from_choices_may_differ_in_about_as_many_elements_as_ties_do() -> None:
    x = RANDOM.permuted(np.tile(np.linspace(0, 1, CLASSES, dtype=np.float32), (64, 1)), axis=1)
    x[7:27] = 1.0  # the ties
    table = RANDOM.standard_normal((CLASSES, 8)).astype(np.float32)
    inputs = {"x": x, "w": WEIGHT, "t": table}
    nodes = f"{SCORES} i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(t, i)"

    def wrong(values: Any, rows: int) -> Any:
        other = values["y"].copy()
        other[7 : 7 + rows] += 1
        return other

    assert judged(nodes, "float y", lambda values: wrong(values, 1), **inputs) == ""
    assert "differ by more than rounding explains" in judged(
        nodes, "float y", lambda values: wrong(values, 50), **inputs
    )


def test_scores_that_a_kernel_is_given_are_exact() -> None:
    x = tied(8)
    best = np.argmax(x, axis=1, keepdims=True)

    assert judged("y = ArgMax<axis = 1>(x)", "int64 y", best, x=x) == ""
    assert judged("y = ArgMax<axis = 1>(x)", "int64 y", (best + 1) % CLASSES, x=x) != ""


def test_an_axis_in_the_middle_is_found() -> None:
    x = RANDOM.standard_normal((2, 5, 3)).astype(np.float32)
    x[1, 4, 2] = x[1, 2, 2] = 9.0

    def made(values: Any) -> Any:
        other = values["y"].copy()
        other[1, 0, 2] = 4
        return other

    def wrong(values: Any) -> Any:
        other = values["y"].copy()
        other[1, 0, 2] = 3
        return other

    assert judged("y = ArgMax<axis = 1>(x)", "int64 y", made, x=x) == ""
    assert judged("y = ArgMax<axis = 1>(x)", "int64 y", wrong, x=x) != ""


def test_the_order_of_equal_scores_is_free_and_none_may_be_taken_twice() -> None:
    nodes = f"{SCORES} v, y = TopK<axis = 1>(s, k)"
    inputs = {"x": tied(16), "w": WEIGHT, "k": np.array([4])}

    assert judged(nodes, "int64 y", np.tile([5, 0, 9, 2], (16, 1)), **inputs) == ""
    assert judged(nodes, "int64 y", np.tile([5, 3, 9, 2], (16, 1)), **inputs) != ""
    assert judged(nodes, "int64 y", np.tile([5, 0, 5, 2], (16, 1)), **inputs) != ""


@pytest.mark.parametrize("compare", ["Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal"])
def test_numbers_that_tie_compare_either_way(compare: str) -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    nodes = f"s = Mul(x, w) t = Mul(x, w2) y = {compare}(s, t)"
    close = {"x": x, "w": np.full(64, 0.3, np.float32), "w2": np.full(64, 0.3, np.float32)}
    apart = {**close, "w2": np.full(64, 0.31, np.float32)}

    def turned(values: Any) -> Any:
        return ~values["y"]

    assert judged(nodes, "bool y", turned, **close) == ""
    assert judged(nodes, "bool y", turned, **apart) != ""


@pytest.mark.parametrize(
    ("nodes", "output"),
    [
        ("y = Equal(x, zero)", "bool y"),
        ("e = Equal(x, zero) y = Cast<to = 1>(e)", "float y"),
        ("r = Relu(x) g = GreaterOrEqual(x, zero) y = Cast<to = 6>(g)", "int32 y"),
        ("y = Cast<to = 9>(x)", "bool y"),
    ],
)
def test_exact_numbers_that_are_equal_compare_in_one_way(nodes: str, output: str) -> None:
    inputs = {"x": np.array([0, 1, 0, -2], np.float32), "zero": np.zeros(4, np.float32)}

    def turned(values: Any) -> Any:
        return (values["y"] == 0).astype(values["y"].dtype)

    assert judged(nodes, output, lambda values: values["y"], **inputs) == ""
    assert judged(nodes, output, turned, **inputs) != ""


def test_what_is_neither_true_nor_false_is_no_comparison() -> None:
    x = np.linspace(-1, 1, 64, dtype=np.float32)
    inputs = {"x": x, "w": np.full(64, 0.3, np.float32), "w2": np.full(64, 0.3, np.float32)}
    nodes = "s = Mul(x, w) t = Mul(x, w2) e = Less(s, t) y = Cast<to = 1>(e)"

    assert judged(nodes, "float y", np.ones(64, np.float32), **inputs) == ""
    assert judged(nodes, "float y", np.full(64, 57, np.float32), **inputs) != ""


@pytest.mark.parametrize("step", ["Floor", "Ceil", "Round"])
def test_a_number_at_a_step_may_fall_on_either_side(step: str) -> None:
    at = {"Floor": 2.0, "Ceil": 2.0, "Round": 2.5}[step]
    x = np.full(64, at, np.float32)
    one = np.ones(64, np.float32)
    nodes = f"s = Mul(x, w) y = {step}(s)"

    for offset in (-1, 0, 1):
        result = judged(nodes, "float y", lambda values, by=offset: values["y"] + np.float32(by), x=x, w=one)
        fits = {"Floor": offset in (-1, 0), "Ceil": offset in (0, 1), "Round": offset in (0, 1)}[step]
        assert (result == "") == fits
    assert judged(nodes, "float y", lambda values: values["y"] + np.float32(1), x=x + np.float32(0.3), w=one) != ""


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast")
def test_an_integer_that_no_number_fits_into_is_free() -> None:
    x = np.array([3e20, 5.4, np.nan], np.float32)
    one = np.ones(3, np.float32)
    nodes = "s = Mul(x, w) y = Cast<to = 6>(s)"

    assert judged(nodes, "int32 y", np.array([7, 5, 0], np.int32), x=x, w=one) == ""
    assert judged(nodes, "int32 y", np.array([7, 6, 0], np.int32), x=x, w=one) != ""


def test_what_follows_a_choice_may_differ_where_the_choice_may() -> None:
    nodes = f"{SCORES} i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(t, i)"
    table = RANDOM.standard_normal((CLASSES, 8)).astype(np.float32)
    inputs = {"x": tied(64), "w": WEIGHT, "t": table}
    decided = RANDOM.standard_normal((64, CLASSES)).astype(np.float32)

    def other(values: Any) -> Any:
        return table[(values["i"] + 1) % CLASSES]

    assert judged(nodes, "float y", other, **inputs) == ""
    assert judged(nodes, "float y", other, **{**inputs, "x": decided}) != ""


def test_no_numbers_at_all_are_wrong_behind_any_choice() -> None:
    table = RANDOM.standard_normal((CLASSES, 8)).astype(np.float32)
    nodes = f"{SCORES} i = ArgMax<axis = 1, keepdims = 0>(s) y = Gather(t, i)"

    assert judged(nodes, "float y", np.full((64, 8), np.nan, np.float32), x=tied(64), w=WEIGHT, t=table) != ""


def test_a_number_instead_of_nan_is_named_where_only_the_error_counts() -> None:
    model = ir.from_onnx_text('<ir_version: 10, opset_import: ["" : 21]> g (float[2] x) => (float[2] y) { y = Abs(x) }')
    judge = Judge(model.graph, correct=False, relative=1e-3, mismatched=0.0)

    found = judge.verdict("y", np.array([1.0, 2.0], np.float32), np.array([1.0, np.nan], np.float32), None)

    assert found.problem == "1 of 2 are NaN or infinite in one only"
