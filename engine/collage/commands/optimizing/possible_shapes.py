"""Which sets of input shapes a model can have."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import onnx_ir

from collage.prepare.shapes import check_given_shapes
from collage.runtime.package.plan import described
from collage.setup.facts import opened
from collage_core.errors import InputShapeError

__all__ = ["InputShapes", "described", "possible_shapes"]

InputShapes = Mapping[str, tuple[int, ...]]


def possible_shapes(
    model: str | os.PathLike[str] | onnx_ir.Model, shapes: Sequence[InputShapes]
) -> tuple[InputShapes, ...]:
    """Return the sets of shapes in which a dimension symbol that several inputs share has one size.

    Raises:
        InputShapeError: If a shape does not fit the input itself, or no set is possible; it says why.
        ModelError: If the model cannot be used.
    """
    if len(shapes) == 1:
        return tuple(shapes)  # `optimize` says what is wrong with it
    given, _, _ = opened(model)
    for name, shape in dict.fromkeys((name, shape) for each in shapes for name, shape in each.items()):
        check_given_shapes(given, {name: shape})
    possible, wrong = [], []
    for each in shapes:
        try:
            check_given_shapes(given, each)
            possible.append(each)
        except InputShapeError as error:
            wrong.append(error)
    if not possible:
        raise wrong[0]
    return tuple(possible)
