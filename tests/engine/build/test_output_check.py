from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from collage.build.verifying.output_check import (
    ValueJudge,
    bounded_values,
    compared_outputs,
    output_discrepancy,
    random_discrepancy,
    random_values,
)
from collage.reference import Evaluation, discrepancy_of, evaluate
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.graphs import GraphBuilder


def classifier(*, classes: int = 8, axis: int = -1) -> DataflowGraph:
    """`softmax_0` of `neg_0` of `x [2, classes]`."""
    g = GraphBuilder()
    return DataflowGraph(g.model(g.op("Softmax", g.op("Neg", g.input("x", 2, classes)), axis=axis)))


def softmax(logits: Any, axis: int = -1, dtype: Any = np.float32) -> Any:
    shifted = np.exp(logits - np.max(logits, axis=axis, keepdims=True), dtype=np.float64)
    return (shifted / shifted.sum(axis=axis, keepdims=True)).astype(dtype)


def expected(logits: Any, axis: int = -1) -> Mapping[str, Any]:
    """What the reference would give: the logits and their softmax."""
    right = np.asarray(logits, np.float32)
    return {"neg_0": right, "softmax_0": softmax(right, axis)}


def error(actual: Any, reference: Mapping[str, Any], axis: int = -1) -> float:
    return output_discrepancy(classifier(axis=axis), "softmax_0", actual, Evaluation(reference, {})).error


def test_an_output_is_compared_with_itself_and_a_softmax_with_what_went_into_it() -> None:
    g = GraphBuilder()
    logits = g.op("Neg", g.input("x", 2, 8))
    graph = DataflowGraph(g.model(g.op("Softmax", logits), g.op("Exp", logits)))

    assert compared_outputs(graph) == {"softmax_0": "neg_0", "exp_0": "exp_0"}


def test_a_softmax_of_another_domain_is_no_softmax() -> None:
    g = GraphBuilder()
    value = g.input("x", 2, 8)
    output = g.op("Softmax", g.op("Neg", value), domain="com.example")
    model = g.model(output)
    output.type, output.shape = value.type, value.shape

    assert compared_outputs(DataflowGraph(model)) == {"softmax_0": "softmax_0"}


@pytest.mark.parametrize(
    ("scale", "worse"),
    [
        pytest.param(0.5, "logits", id="flat"),
        pytest.param(4.0, "probabilities", id="in between"),
        pytest.param(200.0, "logits", id="certain"),
    ],
)
def test_under_a_bound_the_larger_error_of_logits_and_probabilities_counts(scale: float, worse: str) -> None:
    graph, rng = classifier(), np.random.default_rng(0)
    logits = scale * rng.normal(size=(2, 8)).astype(np.float32)
    reference = expected(logits)
    actual = softmax(logits + 0.1 * scale * rng.normal(size=(2, 8)))
    judges = {
        correct: ValueJudge(graph, Evaluation(reference, {}), correct=correct, relative=1.0, mismatched=0.0)
        for correct in (False, True)
    }
    errors = {"logits": error(actual, reference), "probabilities": discrepancy_of(actual, reference["softmax_0"]).error}

    found = {correct: judge.verdict("softmax_0", actual, as_output=True).error for correct, judge in judges.items()}

    assert bounded_values(graph) == {"softmax_0": ("neg_0", "softmax_0")}
    assert max(errors, key=errors.__getitem__) == worse
    assert found == {False: errors[worse], True: errors["logits"]}


def test_an_input_of_the_model_may_be_the_logits() -> None:
    g = GraphBuilder()
    graph = DataflowGraph(g.model(g.op("Softmax", g.input("x", 2, 8))))
    x = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    wanted = {"x", "softmax_0"}

    values = {**evaluate(graph.model, {"x": x}, keep=wanted.__contains__).values, "x": x}

    assert output_discrepancy(graph, "softmax_0", softmax(x), Evaluation(values, {})).error < 1e-6


@pytest.mark.parametrize("axis", [-1, 0])
def test_right_probabilities_pass(axis: int) -> None:
    reference = expected(np.random.default_rng(1).normal(size=(2, 8)) * 5, axis)

    assert error(reference["softmax_0"], reference, axis) < 1e-5


def test_logits_that_differ_by_a_constant_are_the_same_to_a_softmax() -> None:
    logits = np.random.default_rng(2).normal(size=(2, 8))

    assert error(softmax(logits + 3.0), expected(logits)) < 1e-5


def test_wrong_logits_are_seen_where_one_class_is_certain() -> None:
    right = np.array([[30.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] * 2)
    wrong = right.copy()
    wrong[:, 2] = 9.0  # a probability of 1e-13 becomes one of 1e-9: nothing next to 1

    assert np.abs(softmax(wrong) - softmax(right)).max() < 1e-8
    assert error(softmax(wrong), expected(right)) > 0.1


def test_a_class_that_vanished_is_seen() -> None:
    right = np.array([[30.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] * 2)
    wrong = right.copy()
    wrong[:, 2] = -200.0  # its probability cannot be told from 0

    assert softmax(wrong)[0, 2] == 0.0
    assert error(softmax(wrong), expected(right)) > 0.1


def test_a_softmax_certain_of_one_class_for_no_reason_is_seen() -> None:
    right = np.array([[30.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]] * 2)

    assert error(softmax(right * 20), expected(right)) > 0.1


def test_probabilities_too_small_to_be_told_apart_pass() -> None:
    right = np.array([[300.0, 0.0, -50.0, 2.0, 3.0, 4.0, 5.0, 299.0]] * 2)

    assert error(softmax(right), expected(right)) < 1e-5


def test_half_precision_loses_small_probabilities_and_passes() -> None:
    logits = np.array([[8.0, 0.0, -9.0, 7.0, -4.0, 6.5, 5.0, 3.0]] * 2, np.float32)
    reference = {"neg_0": logits.astype(np.float16), "softmax_0": softmax(logits, dtype=np.float16)}

    assert reference["softmax_0"][0, 2] < np.finfo(np.float16).tiny  # not a number of full precision any more
    assert error(reference["softmax_0"], reference) < 2e-3


def test_probabilities_that_are_not_normalised_are_wrong() -> None:
    reference = expected(np.random.default_rng(3).normal(size=(2, 8)))

    found = output_discrepancy(classifier(), "softmax_0", reference["softmax_0"] / 2, Evaluation(reference, {}))

    assert found.error == np.inf
    assert "add up to 1" in found.reason


def test_correct_probabilities_add_up_to_one_but_for_rounding() -> None:
    """A sum that leaves some classes out gives a common factor, which logits do not reveal."""
    reference = expected(np.zeros((2, 1000)))
    right, evaluation = reference["softmax_0"], Evaluation(reference, {})
    graph = classifier()

    assert "add up to 1" in output_discrepancy(graph, "softmax_0", right * 1.004, evaluation, correct=True).reason
    assert not output_discrepancy(graph, "softmax_0", right * 1.004, evaluation).reason
    assert not output_discrepancy(graph, "softmax_0", right * np.float32(1 + 1e-6), evaluation, correct=True).reason


def test_a_negative_probability_is_wrong() -> None:
    reference = expected(np.array([[0.0, -90.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]] * 2))
    actual = reference["softmax_0"].copy()
    actual[0, :2] = actual[0, 0] + 0.01, -0.01

    assert "negative" in output_discrepancy(classifier(), "softmax_0", actual, Evaluation(reference, {})).reason


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_probabilities_that_are_no_numbers_are_wrong(bad: float) -> None:
    reference = expected(np.zeros((2, 8)))
    actual = reference["softmax_0"].copy()
    actual[1, 1] = bad

    found = output_discrepancy(classifier(), "softmax_0", actual, Evaluation(reference, {}))

    assert found.error == np.inf
    assert "NaN or infinite" in found.reason


def test_another_shape_is_wrong() -> None:
    found = output_discrepancy(
        classifier(), "softmax_0", np.zeros((2, 4), np.float32), Evaluation(expected(np.zeros((2, 8))), {})
    )

    assert "shape" in found.reason


def test_another_output_is_compared_as_it_is() -> None:
    graph = DataflowGraph((g := GraphBuilder()).model(g.op("Neg", g.input("x", 2, 2))))
    right = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)

    assert output_discrepancy(graph, "neg_0", right + 1, Evaluation({"neg_0": right}, {})).error == pytest.approx(0.25)


def test_a_random_operator_has_a_say_in_what_comes_after_it_only() -> None:
    g = GraphBuilder()
    x = g.input("x", 2, 8)
    noise = g.op("RandomNormalLike", x)
    graph = DataflowGraph(g.model(g.op("Exp", x), g.op("Add", x, noise)))

    assert random_values(graph) == {"randomnormallike_0": "randomnormallike_0", "add_0": "add_0"}


def test_of_a_random_value_only_type_and_rank_are_right_or_wrong() -> None:
    value = np.zeros((2, 8), np.float32)

    assert random_discrepancy(value + 1, value).error == 0.0
    assert random_discrepancy(value[:1], value).error == 0.0
    assert random_discrepancy(value.astype(np.float64), value).error == np.inf
    assert random_discrepancy(value[0], value).reason
