"""The part of cuBLASLt that is used, as a thin layer: everything above it runs against the library or a recorder.

Numbers are those of `cublasLt.h` and `cublas_api.h` of CUDA 13.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
from typing import Any, Protocol

ALGORITHM_BYTES = 64


class CublasError(Exception):
    """A call failed; its message has the function and the library's word for the status."""


class DataType(enum.IntEnum):
    """`cudaDataType`."""

    R_32F = 0
    R_16F = 2
    R_16BF = 14


COMPUTE_32F = 68


class Desc(enum.Enum):
    """`cublasLtMatmulDescAttributes_t`."""

    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8


class Layout(enum.Enum):
    """`cublasLtMatrixLayoutAttribute_t`."""

    TYPE = 0
    ROWS = 2
    COLS = 3
    LD = 4


class Preference(enum.Enum):
    """`cublasLtMatmulPreferenceAttributes_t`."""

    MAX_WORKSPACE_BYTES = 1
    MIN_ALIGNMENT_A = 5
    MIN_ALIGNMENT_B = 6
    MIN_ALIGNMENT_C = 7
    MIN_ALIGNMENT_D = 8


class Epilogue(enum.IntFlag):
    """`cublasLtEpilogue_t`; what is combined is added in this order: bias, then the activation."""

    DEFAULT = 1
    RELU = 2
    BIAS = 4
    GELU = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One result of the heuristic.

    Attributes:
        algorithm: The 64 bytes of a `cublasLtMatmulAlgo_t`, good for the version that made them.
        workspace_bytes: Scratch memory it needs.
    """

    algorithm: bytes
    workspace_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """Arguments of `cublasLtMatmul`: `d = epilogue(alpha * op(a) op(b))`; descriptors and addresses are integers."""

    desc: int
    alpha: float
    a: int
    a_layout: int
    b: int
    b_layout: int
    d: int
    d_layout: int
    algorithm: bytes
    workspace: int
    workspace_bytes: int
    stream: int


class Descriptors(Protocol):
    """What needs no GPU: descriptors are filled and read in the CPU's memory."""

    def version(self) -> int:
        """For example 130400."""

    def matmul_desc(self, compute: int, scale: DataType) -> int:
        """A new description of a product."""

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        """A new description of a column-major matrix."""

    def preference(self) -> int:
        """New preferences of a search."""

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        """Sets an attribute."""

    def get(self, descriptor: int, attribute: Desc | Layout) -> int:
        """Reads an attribute."""


class Library(Descriptors, Protocol):
    """The whole."""

    def create(self) -> int:
        """A handle; the first call that needs a device."""

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        """Up to `count` algorithms, best guess first; of `matmul` only descriptors count."""

    def enqueue(self, handle: int, matmul: Matmul) -> None:
        """Puts the product on its stream and returns."""


class _Result(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint8 * ALGORITHM_BYTES),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_WIDTHS = {
    Desc.BIAS_POINTER: 8,
    Layout.ROWS: 8,
    Layout.COLS: 8,
    Layout.LD: 8,
    Preference.MAX_WORKSPACE_BYTES: 8,
}
"""Bytes of attributes; 4 of those not named."""


class CublasLt:
    """The library itself, through ctypes.

    Args:
        path: Its shared library.

    Raises:
        OSError: If it cannot be loaded.
    """

    def __init__(self, path: str = "libcublasLt.so.13") -> None:
        self._library = ctypes.CDLL(path)
        self._library.cublasLtGetVersion.restype = ctypes.c_size_t
        self._library.cublasLtGetStatusString.restype = ctypes.c_char_p
        self._kinds: dict[int, str] = {}

    def version(self) -> int:
        return int(self._library.cublasLtGetVersion())

    def create(self) -> int:
        return self._made("Create")

    def matmul_desc(self, compute: int, scale: DataType) -> int:
        return self._made("MatmulDescCreate", ctypes.c_int(compute), ctypes.c_int(scale), kind="MatmulDesc")

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(ld)
        return self._made("MatrixLayoutCreate", ctypes.c_int(dtype), *sizes, kind="MatrixLayout")

    def preference(self) -> int:
        return self._made("MatmulPreferenceCreate", kind="MatmulPreference")

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        data = value.to_bytes(_WIDTHS.get(attribute, 4), "little")
        self._call(
            f"{self._kinds[descriptor]}SetAttribute",
            ctypes.c_void_p(descriptor),
            ctypes.c_int(attribute.value),
            data,
            ctypes.c_size_t(len(data)),
        )

    def get(self, descriptor: int, attribute: Desc | Layout) -> int:
        data, size = ctypes.create_string_buffer(_WIDTHS.get(attribute, 4)), ctypes.c_size_t()
        self._call(
            f"{self._kinds[descriptor]}GetAttribute",
            ctypes.c_void_p(descriptor),
            ctypes.c_int(attribute.value),
            data,
            ctypes.c_size_t(len(data)),
            ctypes.byref(size),
        )
        return int.from_bytes(data.raw[: size.value], "little")

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        results, found = (_Result * count)(), ctypes.c_int()
        layouts = matmul.a_layout, matmul.b_layout, matmul.d_layout, matmul.d_layout
        self._call(
            "MatmulAlgoGetHeuristic",
            *map(ctypes.c_void_p, (handle, matmul.desc, *layouts, preference)),
            ctypes.c_int(count),
            results,
            ctypes.byref(found),
        )
        good = [result for result in results[: found.value] if result.state == 0]
        return [Found(bytes(result.algorithm), int(result.workspace_bytes)) for result in good]

    def enqueue(self, handle: int, matmul: Matmul) -> None:
        pointer = ctypes.c_void_p
        alpha, beta = ctypes.c_float(matmul.alpha), ctypes.c_float(0.0)
        self._call(
            "Matmul",
            *(pointer(handle), pointer(matmul.desc), ctypes.byref(alpha)),
            *map(pointer, (matmul.a, matmul.a_layout, matmul.b, matmul.b_layout)),
            ctypes.byref(beta),
            *map(pointer, (matmul.d, matmul.d_layout, matmul.d, matmul.d_layout)),
            matmul.algorithm,
            pointer(matmul.workspace),
            ctypes.c_size_t(matmul.workspace_bytes),
            pointer(matmul.stream),
        )

    def _made(self, function: str, *arguments: Any, kind: str = "") -> int:
        made = ctypes.c_void_p()
        self._call(function, ctypes.byref(made), *arguments)
        assert made.value is not None
        self._kinds[made.value] = kind
        return made.value

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, f"cublasLt{function}")(*arguments)
        if status:
            word = self._library.cublasLtGetStatusString(status)
            raise CublasError(f"cublasLt{function}: {word.decode() if word else status}")
