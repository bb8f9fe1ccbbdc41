"""A match as a column-major product: what cuBLASLt is told, and how that is kept in an artifact."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Json
from collage_core.patterns import Match
from tests.drafts.cublaslt.library import COMPUTE_32F, DataType, Desc, Epilogue, Layout, Library, Matmul, Preference
from tests.drafts.cublaslt.patterns import DTYPES, epilogue


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A row-major `d[m, n] = epilogue(alpha * a b + bias)`.

    cuBLASLt is column-major, and a row-major matrix is its transpose in columns: `d^T = b^T a^T`. So its first operand
    is `b`, its rows are our columns, and the bias it adds along rows is ours along columns.

    Attributes:
        m: Rows of the result.
        n: Columns of the result.
        k: What is summed over.
        a_transposed: Whether `a` is stored as `[k, m]`.
        b_transposed: Whether `b` is stored as `[n, k]`.
        dtype: Of all matrices.
        epilogue: Bias, activation.
        alpha: Factor of the product.
    """

    m: int
    n: int
    k: int
    a_transposed: bool
    b_transposed: bool
    dtype: DataType
    epilogue: Epilogue
    alpha: float = 1.0

    @classmethod
    def of(cls, match: Match) -> Problem:
        """What a match that `patterns.takes` accepts computes."""
        a, b, product = match.spec("a"), match.spec("b"), match.node("product")
        gemm = product.op_type == "Gemm"
        a_transposed = gemm and bool(product.attribute("transA", 0))
        b_transposed = gemm and bool(product.attribute("transB", 0))
        # leading axes of `a` are further rows
        rows = a.static_shape[-1] if a_transposed else math.prod(a.static_shape[:-1])
        assert b.dtype is not None
        return cls(
            m=rows,
            n=b.static_shape[0 if b_transposed else 1],
            k=b.static_shape[1 if b_transposed else 0],
            a_transposed=a_transposed,
            b_transposed=b_transposed,
            dtype=DTYPES[b.dtype.name],
            epilogue=epilogue(match),
            alpha=float(product.attribute("alpha", 1.0)) if gemm else 1.0,
        )

    def to_json(self) -> dict[str, Json]:
        """As artifacts keep it."""
        return {name: getattr(self, name) for name in self.__slots__} | {
            "dtype": self.dtype.name,
            "epilogue": int(self.epilogue),
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Problem:
        """From what `to_json` gave."""
        return cls(**{**kept, "dtype": DataType[kept["dtype"]], "epilogue": Epilogue(kept["epilogue"])})

    def described(self, library: Library, **pointers: Any) -> Matmul:
        """Its descriptors, made anew, with addresses where they are known."""
        desc = library.matmul_desc(COMPUTE_32F, DataType.R_32F)
        library.set(desc, Desc.TRANSA, int(self.b_transposed))
        library.set(desc, Desc.TRANSB, int(self.a_transposed))
        library.set(desc, Desc.EPILOGUE, int(self.epilogue))
        if self.epilogue & Epilogue.BIAS:
            # the heuristic goes by how the address is aligned
            library.set(desc, Desc.BIAS_POINTER, pointers.pop("bias", DEVICE_ALIGNMENT_BYTES))
        b_stored = (self.k, self.n) if self.b_transposed else (self.n, self.k)
        a_stored = (self.m, self.k) if self.a_transposed else (self.k, self.m)
        unknown = {"a": 0, "b": 0, "d": 0, "algorithm": b"", "workspace": 0, "workspace_bytes": 0, "stream": 0}
        return Matmul(
            desc=desc,
            alpha=self.alpha,
            a_layout=library.layout(self.dtype, *b_stored, b_stored[0]),
            b_layout=library.layout(self.dtype, *a_stored, a_stored[0]),
            d_layout=library.layout(self.dtype, self.n, self.m, self.n),
            **{**unknown, **pointers},
        )


def preference(library: Library, workspace_limit_bytes: int) -> int:
    """What algorithms may count on: scratch memory, and places aligned as core aligns them on a device."""
    made = library.preference()
    library.set(made, Preference.MAX_WORKSPACE_BYTES, workspace_limit_bytes)
    for each in (
        Preference.MIN_ALIGNMENT_A,
        Preference.MIN_ALIGNMENT_B,
        Preference.MIN_ALIGNMENT_C,
        Preference.MIN_ALIGNMENT_D,
    ):
        library.set(made, each, DEVICE_ALIGNMENT_BYTES)
    return made


__all__ = ["Layout", "Problem", "preference"]
