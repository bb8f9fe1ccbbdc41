"""Layer norm and RMS norm, as exporters write them and as operators.

Layer norm (Ba et al., 2016) is (x - mean) / sqrt(variance + epsilon) * scale + bias, RMS norm (Zhang and Sennrich,
2019) x / sqrt(mean of squares + epsilon) * scale, with means over some axes of x. Exporters differ in how they divide
by the root, in whether they write the deviation once or twice, and in whether they compute in a wider type than that
of x.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from collage_core.patterns import NodeContext, Pattern, is_absent, is_constant, is_op, wildcard
from collage_core.patterns.library.arithmetic import cast_of_floats, over_root, square

LAST = (-1,)
"""The axis that transformers normalise over."""
_LARGEST_EPSILON = 0.01


def layer_norm_pattern(of: Pattern | None = None, *, axes: Sequence[int] = LAST) -> Pattern:
    """Match layer norm over some axes, with a scale and a bias, a scale alone, or neither.

    Captures `scale` and `bias` if present, and `epsilon` if it is not an attribute.

    Args:
        of: Pattern of x; by default any value, captured as `x`.
        axes: The normalised axes, each as an index or counted from the end: `(1,)` for the channels of an image.
            Operators normalise over trailing axes only.
    """
    x = wildcard().named("x") if of is None else of
    operator = is_op("LayerNormalization")(x, wildcard().named("scale"), _optional("bias"))
    written = _layer_norm(x, axes) | _widened_layer_norm(x, axes)
    return operator.at(0).which(_over(axes), f"over axes {tuple(axes)}") | _affine(written, axes)


def rms_norm_pattern(of: Pattern | None = None, *, axes: Sequence[int] = LAST) -> Pattern:
    """Match RMS norm over some axes, with or without a scale.

    Captures `scale` if present, and `epsilon` if it is not an attribute.

    Args:
        of: Pattern of x; by default any value, captured as `x`, except the deviation from a mean: RMS norm of
            that is layer norm.
        axes: As for `layer_norm_pattern`.
    """
    deviation = _deviation(wildcard(), axes)
    x = (wildcard() & ~(deviation | cast_of_floats(deviation))).named("x") if of is None else of
    operator = is_op("RMSNormalization")(x, wildcard().named("scale")).which(_over(axes), f"over axes {tuple(axes)}")
    written = _rms_norm(x, x, axes) | _rms_norm(cast_of_floats(x), cast_of_floats(x), axes)
    return operator | _scaled(_narrowed(written), axes)


def _layer_norm(x: Pattern, axes: Sequence[int]) -> Pattern:
    return over_root(_deviation(x, axes), _with_epsilon(_mean(square(_deviation(x, axes)), axes)))


def _widened_layer_norm(x: Pattern, axes: Sequence[int]) -> Pattern:
    """Match TorchScript's half-precision layer norm, computed in double after the subtraction of the mean."""
    wide = cast_of_floats(_deviation(x, axes))
    return cast_of_floats(over_root(wide, _with_epsilon(_mean(square(wide), axes))))


def _rms_norm(x: Pattern, also_x: Pattern, axes: Sequence[int]) -> Pattern:
    """Match RMS norm of x, where x may be cast twice to the type of the computation."""
    return over_root(x, _with_epsilon(_mean(square(also_x), axes)))


def _deviation(x: Pattern, axes: Sequence[int]) -> Pattern:
    """Match x minus its mean; build a new pattern on every call, because models may compute it twice."""
    return is_op("Sub")(x, _mean(x, axes))


def _with_epsilon(mean: Pattern) -> Pattern:
    epsilon = is_constant(
        lambda array: array.size == 1 and 0 <= float(array.reshape(())) <= _LARGEST_EPSILON, "a small number"
    )
    return is_op("Add")(mean, epsilon.named("epsilon"))


def _mean(value: Pattern, axes: Sequence[int]) -> Pattern:
    return is_op("ReduceMean")(value, ...).has_attr(keepdims=1).which(_reduces(axes), f"over axes {tuple(axes)}")


def _narrowed(value: Pattern) -> Pattern:
    return cast_of_floats(value) | value


def _optional(name: str) -> Pattern:
    return wildcard().named(name) | is_absent()


def _affine(normalised: Pattern, axes: Sequence[int]) -> Pattern:
    scaled = _scaled(normalised, axes)
    biased = is_op("Add")(scaled, is_constant().named("bias"))
    return biased.which(_of_extents(axes), f"by constants of axes {tuple(axes)}") | scaled


def _scaled(normalised: Pattern, axes: Sequence[int]) -> Pattern:
    scaled = is_op("Mul")(normalised, is_constant().named("scale"))
    return scaled.which(_of_extents(axes), f"by constants of axes {tuple(axes)}") | normalised


def _numbers(axes: Sequence[int], rank: int) -> set[int]:
    return {axis + rank if axis < 0 else axis for axis in axes}


def _reduces(axes: Sequence[int]) -> Callable[[NodeContext], bool]:
    """Return a predicate: whether a reduction is over exactly these axes."""

    def holds(node: NodeContext) -> bool:
        given = node.attribute("axes")
        if given is None:
            constant = node.constant(1)
            given = None if constant is None else tuple(constant.reshape(-1).tolist())
        if not given:
            return False
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        return set(given) == set(axes) if shape is None else _numbers(given, len(shape)) == _numbers(axes, len(shape))

    return holds


def _over(axes: Sequence[int]) -> Callable[[NodeContext], bool]:
    """Return a predicate: whether a normalisation operator, which covers trailing axes, covers exactly these."""

    def holds(node: NodeContext) -> bool:
        first = int(node.attribute("axis", -1))
        shape = node.inputs[0].shape if node.inputs[0] is not None else None
        if shape is None:
            return set(range(first, 0)) == set(axes)
        rank = len(shape)
        return set(range(first + rank if first < 0 else first, rank)) == _numbers(axes, rank)

    return holds


def _of_extents(axes: Sequence[int]) -> Callable[[NodeContext], bool]:
    """Return a predicate: whether a constant operand has the result's extents on these axes and one elsewhere."""

    def holds(node: NodeContext) -> bool:
        result = node.outputs[0].shape
        constants = [node.constant(position) for position in range(2)]
        return result is not None and any(_fits(each, result, axes) for each in constants if each is not None)

    return holds


def _fits(constant: np.ndarray[Any, Any], result: Sequence[int | None], axes: Sequence[int]) -> bool:
    mine = _numbers(axes, len(result))
    padded: tuple[int, ...] = (1,) * (len(result) - constant.ndim) + constant.shape
    return padded == tuple(extent if axis in mine else 1 for axis, extent in enumerate(result))
