"""Infer shapes where sizes vary: each extent as an expression of the symbols of the model's inputs.

ONNX's own inference gives up on most arithmetic: the length of a BERT's attention mask, sliced to that of the tokens,
is another symbol there, and all that follows from it too. `onnx-shape-inference` carries expressions through shapes
and through the integers that are computed of them. It works on the IR, so no weight is serialised, and depends on
nothing but onnx_ir, whose dimensions hold the expressions.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import numpy as np
import onnx_ir as ir

from collage_core.ir.io.inference import all_graphs, infer_model

_DATA_KEY = "pkg.onnx_shape_inference.sym_data"
"""Its `SYM_DATA_KEY`: metadata of a value that is computed of shapes, a list of numbers and expressions as JSON."""
_MOST_ELEMENTS = 1024
"""Largest computed value that is looked at: targets, axes and pads are far smaller."""


def infer_symbolic(model: ir.Model, symbols: Collection[str]) -> None:
    """Infer types and shapes over the whole model, in place.

    Args:
        model: The model.
        symbols: Names of the free dimensions of its inputs.
    """
    # imported here because few models need it, and it loads SymPy
    import onnx_shape_inference

    infer_model(model)
    for graph in all_graphs(model.graph):
        for node in graph:
            for value in node.outputs:
                value.shape = _without_made_up(value.shape, symbols)
    try:
        onnx_shape_inference.infer_symbolic_shapes(model, warn_on_missing=False)
    except Exception:  # of what it makes nothing, a toolchain may: the shapes so far are right
        return


def is_known(dim: int | ir.SymbolicDim, symbols: Collection[str]) -> bool:
    """Return whether an extent is a number, or follows from those of the model's inputs."""
    return isinstance(dim, int) or (dim.value is not None and dim.free_symbols() <= frozenset(symbols))


def known_data(value: ir.Value) -> np.ndarray | None:
    """Return a value that is computed of shapes and the same for every size; None if that is not known."""
    text = value.metadata_props.get(_DATA_KEY)
    if text is None or value.shape is None or not value.shape.is_static() or value.dtype is None:
        return None
    numbers = json.loads(text)
    shape = tuple(int(dim) for dim in value.shape.numpy())
    if len(numbers) > _MOST_ELEMENTS or any(type(number) is not int for number in numbers):
        return None
    if len(numbers) != int(np.prod(shape)) or not value.dtype.is_integer():
        return None
    return np.array(numbers, value.dtype.numpy()).reshape(shape)


def forget_data(model: ir.Model) -> None:
    """Remove what inference noted about computed values."""
    for graph in all_graphs(model.graph):
        for node in graph:
            for value in node.outputs:
                value.metadata_props.pop(_DATA_KEY, None)
        for value in (*graph.inputs, *graph.initializers.values()):
            value.metadata_props.pop(_DATA_KEY, None)


def _without_made_up(shape: ir.Shape | None, symbols: Collection[str]) -> ir.Shape | None:
    if shape is None:
        return None
    return ir.Shape([dim if is_known(dim, symbols) else None for dim in shape])
