"""Lower the precision of a kernel function's products, for targets with an option `precision`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import onnx_ir

from collage_core.contract.function import KernelFunction
from collage_core.contract.support import Unsupported
from collage_core.contract.weights import converted
from collage_core.ir.operators.narrowing import Overflow, narrowed_products

PRECISIONS: Mapping[str, onnx_ir.DataType] = MappingProxyType(
    {"fp16": onnx_ir.DataType.FLOAT16, "bf16": onnx_ir.DataType.BFLOAT16}
)
"""Types that operands are rounded to, by value of a target's option `precision`. `tf32` is no tensor type."""


def in_precision(
    function: KernelFunction, dtype: onnx_ir.DataType, *, keep_quantised: bool = False
) -> KernelFunction | Unsupported:
    """Round the float32 operands of a function's products to a 16-bit type; see `ir.narrowing`.

    The content key of a converted weight in `constants` is the one that an `Artifact` requests:
    `weights.converted`.

    Args:
        function: The function; it is not changed.
        dtype: One of `PRECISIONS`.
        keep_quantised: See `narrowed_products`.

    Returns:
        A function with the same name, inputs and outputs. Or the refusal that names a weight out of the type's range.
    """
    found = narrowed_products(function.model, dtype, keep_quantised=keep_quantised)
    if isinstance(found, Overflow):
        return out_of_range(found, dtype)
    hashes = _Hashes(function.constants, found.model, found.weights, dtype)
    return dataclasses.replace(function, model=found.model, constants=hashes)


def out_of_range(found: Overflow, dtype: onnx_ir.DataType) -> Unsupported:
    """Return the refusal for a weight that exceeds a type's range."""
    return Unsupported(
        f"the weight {found.weight!r} has a number of magnitude {found.magnitude:.3g}, "
        f"and {dtype.name.lower()} ends at {found.largest:.3g}"
    )


class _Hashes(Mapping[str, str]):
    """Content hashes of the weights of a narrowed model, computed on demand."""

    def __init__(
        self, original: Mapping[str, str], model: onnx_ir.Model, weights: Mapping[str, str], dtype: onnx_ir.DataType
    ) -> None:
        self._original = original
        self._model = model
        self._weights = weights
        self._dtype = dtype

    def __getitem__(self, name: str) -> str:
        if name in self._weights:
            return converted(self._original[self._weights[name]], self._dtype)
        if name not in self._model.graph.initializers:
            raise KeyError(name)
        return self._original[name]

    def __iter__(self) -> Iterator[str]:
        names = self._model.graph.initializers
        return (name for name in names if name in self._weights or name in self._original)

    def __len__(self) -> int:
        return sum(1 for _ in self)
