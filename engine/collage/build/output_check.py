"""How far a model's outputs are from the reference's."""

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
"""Probabilities below this, or the smallest normal number of their type, have lost the bits that a logarithm would
need; all they say is that the logit is at most that small."""
_SUM_SLACK = 0.02
"""A sum of probabilities rounded to 8 bits is this close to 1; the logarithms say nothing about a common factor."""


def random_values(graph: DataflowGraph) -> dict[str, str]:
    """Values in which a random or stateful operator has a say: the reference's are as good as any other.

    Returns:
        By value name, name of the node that gives it.
    """
    return {
        str(value.name): graph.names[index]
        for index in iterate_bits(random_nodes(graph, graph.all_mask))
        for value in graph.nodes[index].outputs
    }


def random_discrepancy(actual: Any, expected: Any) -> Discrepancy:
    """Whether one of `random_values` has the type and rank of another; its elements and extents are up to chance."""
    if isinstance(expected, list | tuple):
        return Discrepancy(0.0, "", 0, 0)
    given, other = np.asarray(actual), np.asarray(expected)
    if (given.dtype, given.ndim) != (other.dtype, other.ndim):
        return compare(given, other)
    return Discrepancy(0.0, "", 0, given.size)


def compared_outputs(graph: DataflowGraph) -> dict[str, str]:
    """What each output is compared with: itself, or the input of the Softmax that produces it.

    A final Softmax hides errors: once one class is certain, the others' logits may be anything. So such an output is
    compared before it.

    Args:
        graph: The prepared model's graph.

    Returns:
        By output name, name of the reference's value to compare with.
    """
    found = {}
    for value in graph.model.graph.outputs:
        logits = _logits(value)
        found[str(value.name)] = str(logits.name) if logits is not None else str(value.name)
    return found


def output_discrepancy(graph: DataflowGraph, name: str, actual: Any, expected: Mapping[str, Any]) -> Discrepancy:
    """How far an output is from the reference's.

    The error of an output of a Softmax is that of its logits: `log` of the probabilities gives them back up to a
    constant along the axis, which the reference's own fixes.

    Args:
        graph: The prepared model's graph.
        name: The output.
        actual: What was computed.
        expected: The reference's values; must hold those `compared_outputs` names.
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
