"""Judge a model's values by the reference's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir

from collage.measure.driver.capture import random_nodes
from collage.reference import Discrepancy, Evaluation, discrepancy_of
from collage.reference.choices import needed_values
from collage.reference.conditioning import unit_of
from collage.reference.judge import Judge, Verdict
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

RANDOM_REASON = "a random or stateful operator has a say in its value"

_SMALLEST = 1e-30
"""Smallest probability of which the logarithm is compared.

Probabilities below this, or below the smallest normal number of their type, have lost the bits that a logarithm would
need; they only show that the logit is at most that small.
"""
_OF_PROBABILITIES = 4.0
"""Relative noise of a probability, in units of rounding, beside that of its logit: exponentials are approximated."""
_SUM_SLACK = 0.02
"""Tolerance for sums of probabilities: rounding to 8 bits keeps them this close to 1.

The logarithms do not reveal a common factor.
"""
_CORRECT_SLACK, _CORRECT_SLACK_UNITS = 1e-4, 64
"""The same where probabilities have to be correct, or so many units of rounding if that is more."""


def random_values(graph: DataflowGraph) -> dict[str, str]:
    """Return the values that depend on a random or stateful operator, which no reference can predict.

    Returns:
        Name of the producing node, by value name.
    """
    return {
        str(value.name): graph.names[index]
        for index in iterate_bits(random_nodes(graph, graph.all_mask))
        for value in graph.nodes[index].outputs
    }


def random_discrepancy(actual: Any, expected: Any) -> Discrepancy:
    """Compare the type and rank of two `random_values`; elements and extents are random and are not compared."""
    if isinstance(expected, list | tuple):
        return Discrepancy(0.0, "", 0, 0)
    given, other = np.asarray(actual), np.asarray(expected)
    if (given.dtype, given.ndim) != (other.dtype, other.ndim):
        return discrepancy_of(given, other)
    return Discrepancy(0.0, "", 0, given.size)


def compared_outputs(graph: DataflowGraph) -> dict[str, str]:
    """Return the reference value that each output is compared with: itself, or the input of its final Softmax.

    A final Softmax hides errors: once one class is certain, the logits of the others hardly affect the output.
    Such an output is therefore compared before the Softmax; where it need not be correct, both count
    (`bounded_values`).

    Args:
        graph: Graph of the prepared model.

    Returns:
        Name of the reference value to compare with, by output name.
    """
    found = {}
    for value in graph.model.graph.outputs:
        logits = _logits(value)
        found[str(value.name)] = str(logits.name) if logits is not None else str(value.name)
    return found


def bounded_values(graph: DataflowGraph) -> dict[str, tuple[str, ...]]:
    """Return the reference values whose errors are an output's error where it need not be correct.

    Flat probabilities change as much as their logits; logits of a certain class change without them. So both count.

    Args:
        graph: Graph of the prepared model.

    Returns:
        Names of the values, by output name: the output, and the input of a final Softmax.
    """
    return {name: tuple(dict.fromkeys((compared, name))) for name, compared in compared_outputs(graph).items()}


class ValueJudge:
    """Judges values of a whole model: its outputs, and what its kernels pass on.

    Args:
        graph: Graph of the prepared model.
        evaluation: Reference values; must hold those that `needed` names.
        correct: Whether values have to be correct; otherwise only their error counts, see `bounded_values`.
        relative: Largest error of numbers.
        mismatched: Largest share of differing elements, as for `Judge`.
        is_rounding_allowed: Whether values behind a QuantizeLinear may be quanta off.
    """

    def __init__(
        self,
        graph: DataflowGraph,
        evaluation: Evaluation,
        *,
        correct: bool,
        relative: float,
        mismatched: float,
        is_rounding_allowed: bool = True,
    ) -> None:
        self._graph = graph
        self._correct = correct
        self._evaluation = evaluation
        self._chance = random_values(graph)
        self._judge = Judge.over(
            graph.model.graph,
            evaluation,
            correct=correct,
            relative=relative,
            mismatched=mismatched,
            quanta=is_rounding_allowed,
        )

    def verdict(self, name: str, actual: Any, *, as_output: bool) -> Verdict:
        """Say whether a value may be correct.

        Args:
            name: Its name.
            actual: What was computed.
            as_output: Whether it is compared as an output of the model is; see `compared_outputs`.
        """
        right = self._evaluation.values[name]
        if name in self._chance:
            drawn = random_discrepancy(actual, right)
            return Verdict(drawn.error, drawn.reason)
        conditioning = self._evaluation.conditioning.get(name)
        correct = self._correct
        found = output_discrepancy(self._graph, name, actual, self._evaluation, correct=correct) if as_output else None
        if found is not None and not correct:
            found = _worse(found, discrepancy_of(actual, right, conditioning))
        return self._judge.verdict(name, actual, right, conditioning, found)

    def left_open(self, name: str) -> float:
        """Return the share of a value's elements that may be anything, because choices before them may differ."""
        right, conditioning = self._evaluation.values[name], self._evaluation.conditioning.get(name)
        return 0.0 if name in self._chance else self._judge.left_open(name, right, conditioning)


def needed(graph: DataflowGraph, names: Collection[str]) -> frozenset[str]:
    """Return the reference values that judging some values takes: themselves, and what choices are between.

    Args:
        graph: Graph of the prepared model.
        names: Names of the values.
    """
    wanted = {*names}
    values = [value for node in graph.nodes for value in node.outputs if str(value.name) in wanted]
    found = wanted | needed_values(values)
    outputs = compared_outputs(graph)
    found.update(outputs[name] for name in names if name in outputs)
    return frozenset(found)


def output_discrepancy(
    graph: DataflowGraph, name: str, actual: Any, evaluation: Evaluation, *, correct: bool = False
) -> Discrepancy:
    """Compute the discrepancy between an output and the reference.

    The error of a Softmax output is that of its logits: `log` of the probabilities recovers them up to a constant
    along the axis, which the reference logits determine.

    Args:
        graph: Graph of the prepared model.
        name: Name of the output.
        actual: Computed value.
        evaluation: Reference values; must hold the output's own and that which `compared_outputs` names.
        correct: Whether it has to be correct.
    """
    output = next(value for value in graph.model.graph.outputs if value.name == name)
    logits, right = _logits(output), evaluation.values[name]
    if logits is None:
        return discrepancy_of(actual, right, evaluation.conditioning.get(name))
    wanted, conditioning = evaluation.values[str(logits.name)], evaluation.conditioning.get(str(logits.name))
    given = np.asarray(actual)
    if given.shape != np.shape(right) or given.dtype != np.asarray(right).dtype or not np.isfinite(given).all():
        return discrepancy_of(given, right)
    node = output.producer()
    assert node is not None
    axis = node.attributes.get_int("axis", -1)
    smallest = max(_SMALLEST, float(ml_dtypes.finfo(given.dtype).tiny))
    unit = unit_of(given.dtype)
    given, wanted = given.astype(np.float64), np.asarray(wanted, np.float64)
    slack = min(_SUM_SLACK, max(_CORRECT_SLACK, _CORRECT_SLACK_UNITS * unit)) if correct else _SUM_SLACK
    if (given < 0).any():
        return Discrepancy(np.inf, "it has negative probabilities", given.size, given.size, beyond=given.size)
    if (np.abs(given.sum(axis=axis) - 1.0) > slack).any():
        return Discrepancy(np.inf, "its probabilities do not add up to 1", given.size, given.size, beyond=given.size)
    usable = given > smallest
    recovered = np.log(np.where(usable, given, smallest))
    shift = np.sum(np.where(usable, wanted - recovered, 0.0), axis=axis, keepdims=True)
    recovered += shift / np.maximum(usable.sum(axis=axis, keepdims=True), 1)
    # a probability has a relative error of its own, which is an absolute one of its logit
    known = None if conditioning is None else conditioning.with_noise(_OF_PROBABILITIES * unit)
    return discrepancy_of(np.where(usable, recovered, np.minimum(recovered, wanted)), wanted, known)


def _worse(first: Discrepancy, second: Discrepancy) -> Discrepancy:
    """Return the one of the larger error, or one that could not be compared."""
    return max(first, second, key=lambda each: (bool(each.reason), each.error))


def _logits(value: onnx_ir.Value) -> onnx_ir.Value | None:
    node = value.producer()
    if node is None or node.op_type != "Softmax" or node.domain not in ("", "ai.onnx"):
        return None
    return node.inputs[0]
