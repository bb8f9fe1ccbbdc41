"""Compare a model's outputs with the reference's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir

from collage.measure.driver.capture import random_nodes
from collage.reference import Discrepancy, compare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

RANDOM_REASON = "a random or stateful operator has a say in its value"

_SMALLEST = 1e-30
"""Smallest probability of which the logarithm is compared.

Probabilities below this, or below the smallest normal number of their type, have lost the bits that a logarithm would
need; they only show that the logit is at most that small.
"""
_SUM_SLACK = 0.02
"""Tolerance for sums of probabilities: rounding to 8 bits keeps them this close to 1.

The logarithms do not reveal a common factor.
"""


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
        return compare(given, other)
    return Discrepancy(0.0, "", 0, given.size)


def compared_outputs(graph: DataflowGraph) -> dict[str, str]:
    """Return the reference value that each output is compared with: itself, or the input of its final Softmax.

    A final Softmax hides errors: once one class is certain, the logits of the others hardly affect the output.
    Such an output is therefore compared before the Softmax.

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


def output_discrepancy(graph: DataflowGraph, name: str, actual: Any, expected: Mapping[str, Any]) -> Discrepancy:
    """Compute the discrepancy between an output and the reference.

    The error of a Softmax output is that of its logits: `log` of the probabilities recovers them up to a constant
    along the axis, which the reference logits determine.

    Args:
        graph: Graph of the prepared model.
        name: Name of the output.
        actual: Computed value.
        expected: Reference values; must hold those that `compared_outputs` names.
    """
    value = next(v for v in graph.model.graph.outputs if v.name == name)
    logits = _logits(value)
    right = expected[name] if logits is None else expected[str(logits.name)]
    if logits is None:
        return compare(actual, right)
    given = np.asarray(actual)
    if given.shape != np.shape(right) or not np.isfinite(given).all():
        return compare(given, expected.get(name, right))
    node = value.producer()
    assert node is not None
    axis = node.attributes.get_int("axis", -1)
    smallest = max(_SMALLEST, float(ml_dtypes.finfo(given.dtype).tiny))
    given, wanted = given.astype(np.float64), np.asarray(right, np.float64)
    if (np.abs(given.sum(axis=axis) - 1.0) > _SUM_SLACK).any():
        return Discrepancy(np.inf, "its probabilities do not add up to 1", given.size, given.size)
    usable = given > smallest
    recovered = np.log(np.where(usable, given, smallest))
    shift = np.sum(np.where(usable, wanted - recovered, 0.0), axis=axis, keepdims=True)
    recovered += shift / np.maximum(usable.sum(axis=axis, keepdims=True), 1)
    return compare(np.where(usable, recovered, np.minimum(recovered, wanted)), wanted)


def _logits(value: onnx_ir.Value) -> onnx_ir.Value | None:
    node = value.producer()
    if node is None or node.op_type != "Softmax" or node.domain not in ("", "ai.onnx"):
        return None
    return node.inputs[0]
