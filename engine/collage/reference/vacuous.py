"""Find outputs that say nothing about the kernels that compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from collage.reference.discrepancy import is_floating
from collage_core.ir.graph.dataflow import DataflowGraph


def vacuous_outputs(graph: DataflowGraph, value: Callable[[str], Any]) -> dict[str, str]:
    """Return the outputs that kernels would get right that compute nothing: of zeros, or without a single number.

    Args:
        graph: Graph of the prepared model.
        value: Returns the reference's value of an output.

    Returns:
        What all elements are, by name of the output.
    """
    found = {str(output.name): _all(value(str(output.name))) for output in graph.model.graph.outputs}
    return {name: what for name, what in found.items() if what}


def _all(value: Any) -> str:
    """Return what all numbers of a tensor are; empty if they differ, or are no floating-point numbers.

    Examples:
        >>> _all(np.zeros(3)), _all(np.full(2, np.nan)), _all(np.ones(2)), _all(np.zeros(2, int))
        ('zero', 'NaN or infinite', '', '')
    """
    if not isinstance(value, np.ndarray) or not value.size or not is_floating(value):
        return ""
    if not value.any():
        return "zero"
    return "" if np.isfinite(value).any() else "NaN or infinite"
