"""What one call of a compiled kernel is told: extents, and how operands lie in memory; in elements throughout."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

from collage_core.contract import Json


class Source(enum.Enum):
    """What the tensor beside product and bias is for; the value is its name in `epilogue.cuh`."""

    NONE = "kNone"
    SCALE = "kScale"
    """A number for each column that the product is multiplied by, before the bias."""
    BEFORE = "kBefore"
    """Added before the activation."""
    AFTER = "kAfter"
    """Added after it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Chain:
    """What follows a product: activation(x * scale + bias + residual) + residual, each part if wanted.

    Attributes:
        activation: Name of the functor in `epilogue.cuh`.
        source: What the tensor beside the bias is for.
        first: The activation's first number.
        second: Its second.
    """

    activation: str
    source: Source
    first: float = 0.0
    second: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class Matrices:
    """Equal matrices in memory.

    Attributes:
        ld: Elements from one row to the next; from one column to the next where they lie by columns.
        stride: Elements from one matrix to the next.
        by_columns: Whether columns lie side by side, and not rows.
    """

    ld: int
    stride: int
    by_columns: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Gemm:
    """`batch` products of `[m, k]` and `[k, n]`.

    Attributes:
        m: Rows of the result.
        n: Its columns.
        k: What is summed over.
        batch: How many products.
        a: The first factors.
        b: The second ones.
        result: The results, whose rows lie side by side.
        source: The tensor beside the bias; a vector for each column has an `ld` of 0.
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
        """As artifacts keep it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Gemm:
        """From what `to_json` gave."""
        return cls(**{**kept, **{name: Matrices(**kept[name]) for name in ("a", "b", "result", "source")}})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conv:
    """A convolution over two axes; images are `[n, h, w, c]` and `[n, p, q, k]`, filters `[k, r, s, c]`.

    Attributes:
        n: Images.
        h: Rows of one.
        w: Columns.
        c: Channels.
        k: Filters, so channels of the result.
        r: Rows of a filter.
        s: Columns.
        p: Rows of the result.
        q: Columns.
        pads: Rows above and columns left of an image that are taken as 0; those beyond follow from `p` and `q`.
        strides: Rows and columns from one place of the filter to the next.
        dilations: Rows and columns from one number of the filter to the next.
        source_is_vector: Whether the tensor beside the bias has a number for each channel only.
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
        """As artifacts keep it."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Conv:
        """From what `to_json` gave."""
        return cls(**{**kept, **{name: tuple(kept[name]) for name in ("pads", "strides", "dilations")}})


Problem = Gemm | Conv


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """A copy of `[batch, rows, columns]`.

    Attributes:
        extents: Of what is copied.
        turned: Whether it becomes `[batch, columns, rows]`.
        narrowed: Whether elements are rounded from the model's to those that are multiplied.
    """

    extents: tuple[int, int, int]
    turned: bool = False
    narrowed: bool = False
