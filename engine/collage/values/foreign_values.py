"""Convert a caller's non-tensor inputs: sequences and optional values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from collage.values.plain_numbers import may_become
from collage_core.errors import FeedError
from collage_core.ir.values.tensor_spec import TensorSpec


def fitted_foreign(value: Any, spec: TensorSpec) -> Any:
    """Copy an input value and convert its arrays to the dtype the model declares.

    The caller may change the original while the model runs.

    Args:
        value: A list of arrays for a sequence; an array, a list, or None for an optional value.
        spec: Type of the input.

    Raises:
        FeedError: If the value does not fit the declared type.

    Examples:
        >>> from collage_core.ir.values.tensor_spec import ValueKind
        >>> kind = "optional(seq(tensor(float)))"
        >>> spec = TensorSpec(name="s", kind=ValueKind.FOREIGN, dtype=None, shape=None, type_name=kind)
        >>> fitted_foreign([[1, 2]], spec), fitted_foreign(None, spec)
        ([array([1., 2.], dtype=float32)], None)
    """
    kind = spec.type_name
    if kind.startswith("optional("):
        if value is None:
            return None
        kind = kind.removeprefix("optional(")[:-1]
    if not kind.startswith(("seq(", "tensor(")):
        return value  # of a type nobody here knows
    if kind.startswith("tensor("):
        return _array(value, kind, spec)
    if not isinstance(value, list | tuple):
        raise FeedError(spec.name, f"expected {expected_foreign(spec)}, got {_called(value)}")
    return [_array(member, kind.removeprefix("seq(")[:-1], spec) for member in value]


def expected_foreign(spec: TensorSpec) -> str:
    """Describe the values a non-tensor input accepts, for error messages."""
    kind = spec.type_name
    if not kind:
        return "a value that is no tensor"
    inner = kind.removeprefix("optional(")
    wanted = "a list of arrays" if inner.startswith("seq(") else "an array"
    return f"{wanted}{', or None' if inner != kind else ''} ({kind})"


def _array(value: Any, kind: str, spec: TensorSpec) -> Any:
    dtype = ir.DataType[kind.removeprefix("tensor(").removesuffix(")").upper()]
    try:
        array = np.asarray(value)
        if dtype == ir.DataType.STRING:
            fits = array.dtype.kind in "OUS"
        elif hasattr(value, "dtype"):
            fits = array.dtype == dtype.numpy()
        else:  # numbers and nested lists take the input's type, as those of tensors do
            fits = array.dtype.kind not in "OUS" and may_become(dtype.numpy(), array.dtype)
        if fits:
            return np.array(value, object if dtype == ir.DataType.STRING else dtype.numpy())
    except (TypeError, ValueError, OverflowError) as error:
        raise FeedError(spec.name, f"expected {expected_foreign(spec)}, got {_called(value)}: {error}") from error
    raise FeedError(spec.name, f"expected {expected_foreign(spec)}, got {_called(value)}")


def _called(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}{list(value.shape)}"
    return "None" if value is None else f"a {type(value).__name__}"
