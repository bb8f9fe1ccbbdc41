"""Compute Resize as one matrix product per axis.

Interpolation is linear in the pixels and separable by axis, so the matrix of one axis is the result of ONNX's own
Resize on an identity matrix. All its modes and rounding rules thus remain ONNX's; only the application to a large
tensor is done by BLAS (or, for `nearest`, by indexing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from collage.reference.kernels.windows import Array, all_inputs

_PASSED_ON = (
    "antialias",
    "coordinate_transformation_mode",
    "cubic_coeff_a",
    "exclude_outside",
    "mode",
    "nearest_mode",
)


def resize(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """Compute Resize of floating-point images (of anything for `nearest`)."""
    x, _, scales, sizes = all_inputs(inputs, 4)
    nearest = attributes.get("mode") == "nearest"
    if len(inputs) == 2 or not (nearest or x.dtype in (np.float32, np.float64)):
        return NotImplemented  # opset 10 has other coordinates
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return NotImplemented  # it extrapolates, so it is not linear in the pixels
    if attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return NotImplemented  # the sizes asked for are then not those of the output
    by_size = sizes is not None and sizes.size > 0
    wanted = sizes if by_size else scales
    if wanted is None or wanted.size == 0:
        return NotImplemented
    axes = attributes.get("axes") or range(x.ndim)
    options = {name: attributes[name] for name in _PASSED_ON if name in attributes}
    result = x
    for axis, amount in zip(axes, wanted, strict=True):
        axis %= x.ndim
        if amount == (x.shape[axis] if by_size else 1):
            continue
        matrix = _axis_matrix(x.shape[axis], amount, by_size, options)
        if nearest:
            result = np.take(result, matrix.argmax(axis=1), axis=axis)
        else:
            result = _apply(matrix.astype(x.dtype), result, axis)
    return (result,)


def _axis_matrix(length: int, amount: Any, by_size: bool, options: Mapping[str, Any]) -> Array:
    """Return the (out, in) matrix by which one axis is resized."""
    names = ["eye", "", "" if by_size else "amount", "amount" if by_size else ""]
    node = onnx.helper.make_node("Resize", names, ["matrix"], **options)
    opset = onnx.helper.make_opsetid("", onnx.defs.onnx_opset_version())
    function = onnx.helper.make_function("", "Axis", ["eye", "amount"], ["matrix"], [node], [opset])
    amounts = np.array([amount, length], np.int64) if by_size else np.array([amount, 1], np.float32)
    [matrix] = ReferenceEvaluator(function).run(None, {"eye": np.eye(length), "amount": amounts}, attributes={})
    return np.asarray(matrix)


def _apply(matrix: Array, x: Array, axis: int) -> Array:
    if axis == x.ndim - 1:
        return (x.reshape(-1, x.shape[-1]) @ matrix.T).reshape(*x.shape[:-1], -1)
    before, after = x.shape[:axis], x.shape[axis + 1 :]
    folded = x.reshape(int(np.prod(before)), x.shape[axis], -1)
    result: Array = np.matmul(matrix, folded).reshape(*before, matrix.shape[0], *after)
    return result
