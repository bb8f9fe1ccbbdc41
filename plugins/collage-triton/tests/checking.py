"""Groups of operators made kernels of, interpreted, and held against ONNX's reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage.reference import evaluate
from collage_core.contract import KernelFunction
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from collage_triton.emit import grid_of, source_of
from collage_triton.interpreter import Interpreter
from collage_triton.nest import Nest, nest_of
from collage_triton.tiles import Tile

Array = np.ndarray[Any, Any]

_ROUNDING = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
"""Largest error of an element, relative to the largest one: some units in the last place of sums of a few hundred."""


def function_of(g: GraphBuilder, *outputs: onnx_ir.Value) -> KernelFunction:
    """All that was built as one kernel function."""
    graph = DataflowGraph(g.model(*outputs))
    return kernel_function(SubGraph(graph, graph.all_mask), "group")


def feeds_of(function: KernelFunction, seed: int = 0) -> dict[str, Array]:
    """Random inputs: floats around zero and beyond one, integers of both signs, none of them zero."""
    random = np.random.default_rng(seed)
    feeds: dict[str, Array] = {}
    for spec in function.inputs:
        dtype = spec.numpy_dtype
        if dtype == np.bool_:
            feeds[spec.name] = random.random(spec.static_shape) < 0.5
        elif dtype.kind in "iu":
            values = random.integers(1, 7, spec.static_shape)
            signs = random.choice([-1, 1], spec.static_shape) if dtype.kind == "i" else 1
            feeds[spec.name] = np.asarray(values * signs).astype(dtype)
        else:
            feeds[spec.name] = np.asarray(random.standard_normal(spec.static_shape) * 1.5).astype(dtype)
    return feeds


def arguments(nest: Nest, function: KernelFunction, feeds: Mapping[str, Array]) -> list[Array]:
    """A kernel's arrays in order, those it writes full of what nobody should find."""
    arrays = []
    for parameter in nest.parameters:
        if isinstance(parameter.place, str):
            arrays.append(np.ascontiguousarray(function.constant(parameter.place)))
        elif parameter.name.startswith("in"):
            arrays.append(feeds[function.inputs[parameter.place].name])
        else:
            spec = function.outputs[parameter.place]
            arrays.append(np.full(spec.static_shape, 77, spec.numpy_dtype))
    return arrays


class Checker:
    """Interprets kernels and compares what they give with the reference.

    Args:
        interpreter: Runs them.
    """

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    def __call__(
        self,
        function: KernelFunction,
        tiles: Sequence[Tile] = (Tile(8, 8, 1),),
        feeds: Mapping[str, Array] | None = None,
        *,
        tolerance: float = 1.0,
    ) -> Nest:
        """Checks every output of a function.

        Args:
            function: The function.
            tiles: Arrangements to run it under.
            feeds: Its inputs by name; random ones unless given.
            tolerance: How many times the usual error is allowed.

        Returns:
            Its loop nest.

        Raises:
            AssertionError: If an output differs.
            Refused: If there is no loop nest for it.
        """
        given = feeds_of(function) if feeds is None else dict(feeds)
        with np.errstate(all="ignore"):
            expected = evaluate(function.model, given).values
        nest = nest_of(function)
        for tile in tiles:
            arrays, count = arguments(nest, function, given), len(nest.stores)
            sources = source_of(nest, tile)
            found = iter(self._interpreter.run(sources, grid_of(nest, tile), arrays, count) if count else [])
            for spec in function.outputs:
                if spec.nbytes:
                    what = f"{spec.name} under {tile.name}"
                    compare(next(found), np.asarray(expected[spec.name]), what, tolerance)
        return nest


def compare(found: Array, expected: Array, what: str, tolerance: float = 1.0) -> None:
    """Compares tensors: equal where a type is exact, close where it rounds, and no number where the other is none.

    Raises:
        AssertionError: If they differ.
    """
    assert found.dtype == expected.dtype, what
    limit = _ROUNDING.get(expected.dtype.name)
    if limit is None:
        np.testing.assert_array_equal(found, expected, what)
        return
    a, b = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(a), np.isnan(b), what)
    finite = np.isfinite(b)
    np.testing.assert_array_equal(a[~finite], b[~finite], what)
    scale = max(1e-3, float(np.abs(b[finite]).max(initial=0.0)))
    np.testing.assert_allclose(a[finite], b[finite], rtol=0, atol=limit * tolerance * scale, err_msg=what)
