"""Express a product as cuBLASLt descriptors."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import Self

from collage_core.contract import DEVICE_ALIGNMENT_BYTES
from collage_cublas.library import CublasError, DataType, Desc, Epilogue, Layout, Library, Matmul
from collage_cublas.product import Matrices, Product


class Described:
    """Descriptors of one product, destroyed when closed.

    Args:
        library: Library in which they are created.
        product: Product to describe.
        bias: Address of the bias. While it is unknown, a placeholder with the alignment of device memory, since the
            heuristic depends on the alignment (`CUBLASLT_MATMUL_DESC_BIAS_POINTER`).
    """

    def __init__(self, library: Library, product: Product, bias: int = DEVICE_ALIGNMENT_BYTES) -> None:
        self._library = library
        self._product = product
        self._made: list[int] = []
        try:
            self._desc = self._kept(library.matmul_desc(product.compute, DataType.R_32F))
            library.set(self._desc, Desc.TRANSA, int(product.first_transposed))
            library.set(self._desc, Desc.TRANSB, int(product.second_transposed))
            library.set(self._desc, Desc.EPILOGUE, int(product.epilogue))
            if product.epilogue & Epilogue.BIAS:
                library.set(self._desc, Desc.BIAS_POINTER, bias)
            self._first = self._layout(product.first, product.factors)
            self._second = self._layout(product.second, product.factors)
            self._result = self._layout(product.result, product.dtype)
            self._added = self._layout(product.residual, product.dtype) if product.residual else self._result
        except CublasError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Destroy the descriptors."""
        while self._made:
            with contextlib.suppress(CublasError):
                self._library.destroy(self._made.pop())

    def matmul(
        self,
        *,
        first: int = 0,
        second: int = 0,
        residual: int = 0,
        result: int = 0,
        algorithm: bytes = b"",
        workspace: int = 0,
        workspace_bytes: int = 0,
        stream: int = 0,
    ) -> Matmul:
        """Return the call with these addresses; without a residual C is D, not read because its factor is 0."""
        return Matmul(
            desc=self._desc,
            alpha=self._product.alpha,
            a=first,
            a_layout=self._first,
            b=second,
            b_layout=self._second,
            beta=self._product.beta,
            c=residual or result,
            c_layout=self._added,
            d=result,
            d_layout=self._result,
            algorithm=algorithm,
            workspace=workspace,
            workspace_bytes=workspace_bytes,
            stream=stream,
        )

    def _layout(self, matrices: Matrices, dtype: DataType) -> int:
        made = self._kept(self._library.layout(dtype, matrices.rows, matrices.cols, matrices.ld))
        self._library.set(made, Layout.BATCH_COUNT, self._product.batch)
        self._library.set(made, Layout.STRIDED_BATCH_OFFSET, matrices.batch_stride)
        return made

    def _kept(self, descriptor: int) -> int:
        self._made.append(descriptor)
        return descriptor
