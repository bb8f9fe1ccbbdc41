"""Which sets of input shapes a model can have."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

import onnx_ir

from collage.commands.optimizing.buckets import in_buckets
from collage.prepare.shapes import check_given_shapes
from collage.runtime.package.manifest import MOST_PLANS
from collage.runtime.package.plan import described
from collage.setup.facts import opened
from collage_core.errors import InputShapeError, UsageError
from collage_core.ir.values.size_range import Shape

InputShapes = Mapping[str, Shape]


def possible_shapes(
    model: str | os.PathLike[str] | onnx_ir.Model,
    shapes: Sequence[InputShapes],
    tell: Callable[[str], object],
    *,
    buckets: int = 1,
    sizes: Sequence[int] | None = None,
) -> tuple[InputShapes, ...]:
    """Return the sets of shapes in which a dimension symbol that several inputs share has one size, each once.

    Args:
        model: An ONNX file, or a model in memory.
        shapes: The sets.
        tell: Receives a message about the sets that are left out, if there are any.
        buckets: How many typical sizes each range has; see `in_buckets`.
        sizes: See `in_buckets`.

    Raises:
        InputShapeError: If a shape does not fit the input itself, or no set is possible; it says why.
        ModelError: If the model cannot be used.
        UsageError: If there is no set, or there are more than a package has plans.
    """
    if not shapes:
        raise UsageError("no input shapes are given: name at least one set, or leave them out")
    if len(shapes) == 1:
        return in_buckets(model, shapes, buckets, sizes)  # `optimize` says what else is wrong with it
    given, _, _ = opened(model)
    for name, shape in dict.fromkeys((name, shape) for each in shapes for name, shape in each.items()):
        check_given_shapes(given, {name: shape})
    distinct = {frozenset(each.items()): each for each in shapes}.values()
    possible: list[InputShapes] = []
    wrong: list[tuple[InputShapes, InputShapeError]] = []
    for each in distinct:
        try:
            check_given_shapes(given, each)
            possible.append(each)
        except InputShapeError as error:
            wrong.append((each, error))
    if not possible:
        raise wrong[0][1]
    possible = list(in_buckets(model, possible, buckets, sizes))
    if len(possible) > MOST_PLANS:
        raise UsageError(
            f"a package has at most {MOST_PLANS} plans, and there are {len(possible)} sets of input shapes"
        )
    if wrong:
        said = "; ".join(described(each) for each, _ in wrong)
        tell(f"left out, as one dimension has two sizes in them: {said}")
    return tuple(possible)
