"""Map a product of strided tensors to one cuBLASLt call, and serialise that call for artifacts.

cuBLASLt computes on column-major matrices, `d = epilogue(alpha * op(a) op(b) + beta * c)`, repeated along
one batch axis of constant stride; its bias has an element per row of `d`. A row-major matrix is its
transpose in column-major order, so a row-major product is `d^T = b^T a^T`: the library's first operand is
the model's second. Nothing here relies on that: each operand is a set of strides along the axes of the
product (batch, m, n, k), axes are merged where all operands allow it, and the axis along which `d` is
contiguous becomes the library's rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from collage_core.contract import Json, Unsupported
from collage_cublas.library import Compute, DataType, Epilogue
from collage_cublas.strides import Strided

MOST_ELEMENTS = 2**31 - 1
"""Largest extent of an axis.

The batch count is an `int32_t` (`CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT`), and so are the kernels' sizes.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Matrices:
    """A batch of column-major matrices of equal shape in memory.

    Attributes:
        rows: Elements of a column, contiguous in memory.
        cols: Number of columns.
        ld: Elements from one column to the next.
        batch_stride: Elements from one matrix to the next; 0 if all products read the same one.
    """

    rows: int
    cols: int
    ld: int
    batch_stride: int = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Operands:
    """A row-major product and its addends, as strided views of memory.

    Attributes:
        a: `[..., m, k]`; may be broadcast or transposed by its strides.
        b: `[..., k, n]`.
        d: `[..., m, n]`; determines the extents of the batch.
        bias: Broadcast to `d`, one number per row or per column of it.
        residual: Broadcast to `d`, a number for each of its elements.
    """

    a: Strided
    b: Strided
    d: Strided
    bias: Strided | None = None
    residual: Strided | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One call of `cublasLtMatmul`, except for addresses and algorithm.

    Attributes:
        b_first: Whether the library's first operand is the model's `b`, as always when `d` is row-major.
        first: The library's A.
        first_transposed: Whether A is transposed.
        second: The library's B.
        second_transposed: Whether B is transposed.
        result: D.
        residual: C, if something is added with a factor `beta`.
        batch: Number of products.
        dtype: Type of C, D and the bias.
        factors: Type of A and B.
        compute: How products are rounded and summed.
        epilogue: Bias and activation, applied after C is added.
        alpha: Factor of the product.
        beta: Factor of C.
    """

    b_first: bool
    first: Matrices
    first_transposed: bool
    second: Matrices
    second_transposed: bool
    result: Matrices
    residual: Matrices | None = None
    batch: int = 1
    dtype: DataType
    factors: DataType
    compute: Compute
    epilogue: Epilogue
    alpha: float = 1.0
    beta: float = 0.0

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts."""
        types = {"dtype": self.dtype.name, "factors": self.factors.name, "compute": self.compute.name}
        return {**dataclasses.asdict(self), **types, "epilogue": int(self.epilogue)}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Product:
        """Create a product from the output of `to_json`."""
        matrices = {
            name: Matrices(**kept[name]) for name in ("first", "second", "result", "residual") if kept[name] is not None
        }
        enums = {
            "dtype": DataType[kept["dtype"]],
            "factors": DataType[kept["factors"]],
            "compute": Compute[kept["compute"]],
            "epilogue": Epilogue(kept["epilogue"]),
        }
        return cls(**{**kept, **matrices, **enums})


@dataclasses.dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of the product: its extent, and each operand's stride along it."""

    extent: int
    strides: Mapping[str, int]

    def over(self, inner: _Axis) -> _Axis | None:
        """Merge this axis with the next inner one, if each operand's strides allow it; else None."""
        if inner.extent == 1:
            return self
        if self.extent == 1 or all(s == inner.strides[name] * inner.extent for name, s in self.strides.items()):
            return _Axis(self.extent * inner.extent, inner.strides)
        return None


def described(
    operands: Operands,
    *,
    dtype: DataType,
    factors: DataType,
    compute: Compute,
    activation: Epilogue,
    alpha: float,
    beta: float,
) -> Product | Unsupported:
    """Find the call that computes `activation(alpha * a b + beta * residual + bias)`.

    Args:
        operands: Factors and addends, without an extent of 0.
        dtype: Type of the addends and of the result.
        factors: Type of the factors.
        compute: Accumulation type of the product.
        activation: `RELU`, `GELU`, or `DEFAULT` for none.
        alpha: Factor of the product.
        beta: Factor of the residual, which is left out where that is 0.

    Returns:
        The call; or why the library's strides cannot express it.
    """
    *batch, m, n, k = _axes(operands)
    if max(axis.extent for axis in (*batch, m, n, k)) > MOST_ELEMENTS:
        return Unsupported(f"an axis has more than {MOST_ELEMENTS} elements")
    batch, m, n = _merged(batch, m, n)
    if len(batch) > 1:
        extents = " and ".join(str(axis.extent) for axis in batch)
        return Unsupported(f"its batch axes of {extents} are broadcast or ordered so that they have no single stride")
    one = batch[0] if batch else _Axis(1, dict.fromkeys(m.strides, 0))
    # the side by side axis of d is the library's rows; if either may be, the longer: columns of one are badly aligned
    ways = [(n, m, True), (m, n, False)] if n.extent > 1 or m.extent == 1 else [(m, n, False), (n, m, True)]
    reasons = []
    for rows, cols, b_first in ways:
        found = _with_rows(rows, cols, k, one, b_first=b_first)
        if isinstance(found, str):
            reasons.append(found)
            continue
        epilogue = activation if activation != Epilogue.DEFAULT else Epilogue(0)
        epilogue |= Epilogue.BIAS if operands.bias else Epilogue(0)
        return Product(
            **found,
            batch=one.extent,
            dtype=dtype,
            factors=factors,
            compute=compute,
            epilogue=epilogue or Epilogue.DEFAULT,
            alpha=alpha,
            beta=beta if operands.residual else 0.0,
        )
    return Unsupported(reasons[0])


def _axes(operands: Operands) -> list[_Axis]:
    """Return the axes: batch axes, m, n, k."""
    a, b, d = operands.a, operands.b, operands.d
    *batch, m, n = d.shape
    k = a.shape[-1]
    views = {"a": a.broadcast((*batch, m, k)).strides, "b": b.broadcast((*batch, k, n)).strides, "d": d.strides}
    added = {"bias": operands.bias, "residual": operands.residual}
    views |= {name: view.broadcast(d.shape).strides for name, view in added.items() if view is not None}
    axes = [_Axis(extent, {name: each[place] for name, each in views.items()}) for place, extent in enumerate(batch)]
    axes.append(_Axis(m, {name: 0 if name == "b" else each[-2] for name, each in views.items()}))
    axes.append(_Axis(n, {name: 0 if name == "a" else each[-1] for name, each in views.items()}))
    along_k = {"a": views["a"][-1], "b": views["b"][-2]}
    return [*axes, _Axis(k, {name: along_k.get(name, 0) for name in views})]


def _merged(batch: list[_Axis], m: _Axis, n: _Axis) -> tuple[list[_Axis], _Axis, _Axis]:
    """Merge batch axes as far as strides allow.

    Neighbouring axes become one, and axes along which one operand is repeated become rows or columns.
    """
    left: list[_Axis] = []
    for axis in batch:
        if axis.extent == 1:
            continue
        joined = left[-1].over(axis) if left else None
        left[-1:] = [joined] if joined else [*left[-1:], axis]
    while left:
        if not left[-1].strides["b"] and (more := left[-1].over(m)):
            m = more
        elif not left[-1].strides["a"] and (more := left[-1].over(n)):
            n = more
        else:
            break
        left.pop()
    return left, m, n


def _with_rows(rows: _Axis, cols: _Axis, k: _Axis, batch: _Axis, *, b_first: bool) -> dict[str, Any] | str:
    """Return the matrices with `rows` as the library's rows; or why that is not possible."""
    names = ("b", "a") if b_first else ("a", "b")
    first, second = _either(names[0], rows, k, batch), _either(names[1], k, cols, batch)
    for name, found in zip(names, (first, second), strict=True):
        if found is None:
            return f"neither the rows nor the columns of {name} lie side by side without overlapping"
    assert first is not None
    assert second is not None
    result = _matrices("d", rows, cols, batch)
    if result is None:
        return "its result is no matrix whose rows or columns lie side by side"
    if "bias" in rows.strides:
        along, across = rows.strides["bias"], cols.strides["bias"]
        if (
            (rows.extent > 1 and along != 1)
            or (cols.extent > 1 and across)
            or (batch.extent > 1 and batch.strides["bias"])
        ):
            side = "columns" if b_first else "rows"
            return f"the bias is not one number for each of the {rows.extent} {side}"
    residual = None
    if "residual" in rows.strides:
        residual = _matrices("residual", rows, cols, batch)
        if residual is None:
            return "what is added is repeated along the rows or columns of the product, or ordered otherwise"
    return {
        "b_first": b_first,
        "first": first[0],
        "first_transposed": first[1],
        "second": second[0],
        "second_transposed": second[1],
        "result": result,
        "residual": residual,
    }


def _either(name: str, rows: _Axis, cols: _Axis, batch: _Axis) -> tuple[Matrices, bool] | None:
    """Return an operand as it is or transposed; where both are possible, that with the longer columns."""
    found = [
        (matrices, transposed)
        for matrices, transposed in (
            (_matrices(name, rows, cols, batch), False),
            (_matrices(name, cols, rows, batch), True),
        )
        if matrices
    ]
    return max(found, key=lambda each: each[0].rows, default=None)


def _matrices(name: str, rows: _Axis, cols: _Axis, batch: _Axis) -> Matrices | None:
    """Return one operand as column-major matrices; None if its strides do not describe such matrices.

    A leading dimension below the number of rows is not allowed (`CUBLASLT_MATRIX_LAYOUT_LD`).
    """
    if rows.extent > 1 and rows.strides[name] != 1:
        return None
    ld = rows.extent if cols.extent == 1 else cols.strides[name]
    if ld < rows.extent:
        return None
    return Matrices(rows.extent, cols.extent, ld, batch.strides[name] if batch.extent > 1 else 0)
