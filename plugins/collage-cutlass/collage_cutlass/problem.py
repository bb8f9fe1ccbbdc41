"""Arguments of one call of a compiled kernel: extents, and memory layout of operands; in elements throughout."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from collage_core.contract import Json


class Source(enum.Enum):
    """Role of the tensor beside product and bias; the value is its name in `epilogue.cuh`."""

    NONE = "kNone"
    SCALE = "kScale"
    """A factor for each column, applied to the product before the bias."""
    BEFORE = "kBefore"
    """Added before the activation."""
    AFTER = "kAfter"
    """Added after the activation."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """Epilogue of a product: activation(x * scale + bias + residual) + residual; each part is optional.

    Attributes:
        activation: Name of the functor in `epilogue.cuh`.
        source: Role of the tensor beside the bias.
        first: The activation's first parameter.
        second: The activation's second parameter.
    """

    activation: str
    source: Source
    first: float = 0.0
    second: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Matrices:
    """A batch of matrices of equal shape in memory.

    Attributes:
        ld: Elements from one row to the next; from one column to the next if `by_columns`.
        stride: Elements from one matrix to the next.
        by_columns: Whether the matrices are column-major rather than row-major.
    """

    ld: int
    stride: int
    by_columns: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products of `[m, k]` and `[k, n]`.

    Attributes:
        m: Rows of the result.
        n: Columns of the result.
        k: Extent that is summed over.
        batch: Number of products.
        a: The first factors.
        b: The second factors.
        result: The results, row-major.
        source: The tensor beside the bias; `ld` is 0 for a vector with an element per column.
    """

    m: int
    n: int
    k: int
    batch: int
    a: Matrices
    b: Matrices
    result: Matrices
    source: Matrices = Matrices(0, 0)

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Gemm:
        """Create a product from the output of `to_json`."""
        return cls(**{**kept, **{name: Matrices(**kept[name]) for name in ("a", "b", "result", "source")}})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A convolution over two axes; images are `[n, h, w, c]` and `[n, p, q, k]`, filters `[k, r, s, c]`.

    Attributes:
        n: Images.
        h: Rows of an image.
        w: Columns of an image.
        c: Channels of an image.
        k: Filters, and channels of the result.
        r: Rows of a filter.
        s: Columns of a filter.
        p: Rows of the result.
        q: Columns of the result.
        pads: Zero rows above and zero columns left of an image; those on the other sides follow from `p` and `q`.
        strides: Rows and columns from one position of the filter to the next.
        dilations: Rows and columns from one element of the filter to the next.
        source_is_vector: Whether the tensor beside the bias has one number per channel.
    """

    n: int
    h: int
    w: int
    c: int
    k: int
    r: int
    s: int
    p: int
    q: int
    pads: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    source_is_vector: bool = False

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Conv:
        """Create a product from the output of `to_json`."""
        return cls(**{**kept, **{name: tuple(kept[name]) for name in ("pads", "strides", "dilations")}})


Problem = Gemm | Conv


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A copy of `[batch, rows, columns]`.

    Attributes:
        extents: Extents of the source.
        turned: Whether it becomes `[batch, columns, rows]`.
        narrowed: Whether elements are rounded from the model's type to that of the factors.
    """

    extents: tuple[int, int, int]
    turned: bool = False
    narrowed: bool = False
