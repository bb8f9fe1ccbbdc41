"""A thin layer over the used part of cuBLASLt; all code above it runs with the library or an emulation.

It uses ctypes: a dozen functions are called, of one shared library that machines already have from different
places (the wheels of CUDA 12 and 13, a toolkit, PyTorch), so no matching binding has to be installed. Names and
numbers are those of `cublasLt.h`, `cublas_api.h` and `library_types.h` of CUDA 13; those of CUDA 12 are the
same.
"""

from __future__ import annotations

import ctypes
import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from collage_core.errors import DeviceMemoryError, KernelError, LoweringError
from collage_cublas.casting import KERNELS, THREADS
from collage_cuda import Contexts

Call: TypeAlias = Callable[[], None]

ALGORITHM_BYTES = 64
"""Size of a `cublasLtMatmulAlgo_t`."""

_ALLOC_FAILED = 3  # CUBLAS_STATUS_ALLOC_FAILED in cublas_api.h
_OF_A_PRODUCT = (7, 8, 15)  # CUBLAS_STATUS_INVALID_VALUE, _ARCH_MISMATCH and _NOT_SUPPORTED


class CublasError(LoweringError, KernelError):
    """A call failed for a reason other than the product; the message names the function and the status.

    Core checks afterwards whether the device still answers, since the library's message may hide that it does not.
    """


class NotSupportedError(CublasError):
    """This version of the library does not support the product on this device."""


class DataType(enum.IntEnum):
    """`cudaDataType`."""

    R_32F = 0
    R_16F = 2
    R_16BF = 14


class Compute(enum.IntEnum):
    """`cublasComputeType_t`: how factors are rounded before products are summed; all of these sum in float32."""

    F32 = 68
    FAST_16F = 74
    FAST_16BF = 75
    TF32 = 77


class Desc(enum.Enum):
    """`cublasLtMatmulDescAttributes_t`."""

    COMPUTE_TYPE = 0
    SCALE_TYPE = 1
    TRANSA = 3
    TRANSB = 4
    EPILOGUE = 7
    BIAS_POINTER = 8


class Layout(enum.Enum):
    """`cublasLtMatrixLayoutAttribute_t`; the order is left at its default, column-major."""

    TYPE = 0
    ORDER = 1
    ROWS = 2
    COLS = 3
    LD = 4
    BATCH_COUNT = 5
    STRIDED_BATCH_OFFSET = 6


class Preference(enum.Enum):
    """`cublasLtMatmulPreferenceAttributes_t`."""

    MAX_WORKSPACE_BYTES = 1
    REDUCTION_SCHEME_MASK = 3
    MIN_ALIGNMENT_A_BYTES = 5
    MIN_ALIGNMENT_B_BYTES = 6
    MIN_ALIGNMENT_C_BYTES = 7
    MIN_ALIGNMENT_D_BYTES = 8


class Config(enum.Enum):
    """`cublasLtMatmulAlgoConfigAttributes_t`: the attributes that distinguish algorithms."""

    ID = 0
    TILE_ID = 1
    SPLITK_NUM = 2
    REDUCTION_SCHEME = 3
    STAGES_ID = 6


class Reduction(enum.IntFlag):
    """`cublasLtReductionScheme_t`: how partial sums that are computed in parallel (split-K) are combined."""

    NONE = 0
    INPLACE = 1
    COMPUTE_TYPE = 2
    OUTPUT_TYPE = 4


class Epilogue(enum.IntFlag):
    """`cublasLtEpilogue_t`: the bias is added before the activation."""

    DEFAULT = 1
    RELU = 2
    BIAS = 4
    GELU = 32


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """One result of the heuristic.

    Attributes:
        algorithm: The 64 bytes of a `cublasLtMatmulAlgo_t`, valid for the library version that made them.
        workspace_bytes: Scratch memory it needs.
        config: Its attributes, by `Config`.
    """

    algorithm: bytes
    workspace_bytes: int
    config: dict[Config, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Matmul:
    """Arguments of `cublasLtMatmul`, which computes `d = epilogue(alpha * op(a) op(b) + beta * c)`.

    Descriptors and addresses are integers.
    """

    desc: int
    alpha: float
    a: int
    a_layout: int
    b: int
    b_layout: int
    beta: float
    c: int
    c_layout: int
    d: int
    d_layout: int
    algorithm: bytes
    workspace: int
    workspace_bytes: int
    stream: int


class Descriptors(Protocol):
    """The part of the library that needs no GPU: descriptors are written and read in host memory."""

    def version(self) -> int:
        """Return `CUBLAS_VERSION`: 131000 for 13.10.0."""

    def matmul_desc(self, compute: Compute, scale: DataType) -> int:
        """Create a descriptor of a product."""

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        """Create a descriptor of a column-major matrix."""

    def preference(self) -> int:
        """Create the preferences of a heuristic search."""

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        """Set an attribute."""

    def get(self, descriptor: int, attribute: Desc | Layout | Preference) -> int:
        """Read an attribute."""

    def destroy(self, descriptor: int) -> None:
        """Destroy a descriptor."""


class Library(Descriptors, Protocol):
    """The complete interface: descriptors, and the calls that need a device."""

    def create(self, device: str) -> int:
        """Create a handle on a device, such as `"cuda:0"`; this is the first call that needs a device.

        Raises:
            CublasError: If the device or the library does not start.
        """

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        """Return up to `count` algorithms, best guess first; only the descriptors of `matmul` are used.

        Raises:
            NotSupportedError: If the library has none.
            CublasError: If it fails.
        """

    def bound(self, handle: int, matmul: Matmul) -> Call:
        """Return a call that enqueues the product on its stream without waiting; it raises `CublasError`."""

    def rounding(self, handle: int, dtype: DataType, *, source: int, target: int, count: int, stream: int) -> Call:
        """Return a call that enqueues the rounding of float32 numbers to 16 bits; otherwise like `bound`.

        Args:
            handle: Handle on the device.
            dtype: `R_16F` or `R_16BF`.
            source: Address of the numbers.
            target: Address of the result.
            count: Number of elements.
            stream: Stream on which to enqueue.

        Raises:
            CublasError: If the driver does not accept the kernel.
        """


class _Result(ctypes.Structure):
    """`cublasLtMatmulHeuristicResult_t`."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * (ALGORITHM_BYTES // 8)),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


_WIDTHS = dict.fromkeys(
    (
        Desc.BIAS_POINTER,
        Layout.ROWS,
        Layout.COLS,
        Layout.LD,
        Layout.STRIDED_BATCH_OFFSET,
        Preference.MAX_WORKSPACE_BYTES,
    ),
    8,
)
"""Size in bytes by attribute; 4 for attributes not listed."""


class CublasLt:
    """The installed library.

    Args:
        library: The loaded `libcublasLt`.
        contexts: Makes devices current.
    """

    def __init__(self, library: Any, contexts: Contexts) -> None:
        self._library = library
        self._library.cublasLtGetVersion.restype = ctypes.c_size_t
        self._library.cublasLtGetStatusString.restype = ctypes.c_char_p
        self._contexts = contexts
        self._kinds: dict[int, str] = {}
        self._devices: dict[int, str] = {}

    def version(self) -> int:
        """See `Descriptors.version`."""
        return int(self._library.cublasLtGetVersion())

    def create(self, device: str) -> int:
        """See `Library.create`."""
        try:
            with self._contexts.current(device):
                handle = self._made("Create")
        except OSError as error:
            raise CublasError(str(error)) from error
        self._devices[handle] = device
        return handle

    def matmul_desc(self, compute: Compute, scale: DataType) -> int:
        """See `Descriptors.matmul_desc`."""
        return self._made("MatmulDescCreate", ctypes.c_int(compute), ctypes.c_int(scale), kind="MatmulDesc")

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        """See `Descriptors.layout`."""
        sizes = ctypes.c_uint64(rows), ctypes.c_uint64(cols), ctypes.c_int64(ld)
        return self._made("MatrixLayoutCreate", ctypes.c_int(dtype), *sizes, kind="MatrixLayout")

    def preference(self) -> int:
        """See `Descriptors.preference`."""
        return self._made("MatmulPreferenceCreate", kind="MatmulPreference")

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        """See `Descriptors.set`."""
        data = value.to_bytes(_WIDTHS.get(attribute, 4), "little")
        self._call(
            f"{self._kinds[descriptor]}SetAttribute",
            ctypes.c_void_p(descriptor),
            ctypes.c_int(attribute.value),
            data,
            ctypes.c_size_t(len(data)),
        )

    def get(self, descriptor: int, attribute: Desc | Layout | Preference) -> int:
        """See `Descriptors.get`."""
        function = f"{self._kinds[descriptor]}GetAttribute"
        return self._read(function, ctypes.c_void_p(descriptor), attribute)

    def destroy(self, descriptor: int) -> None:
        """See `Descriptors.destroy`."""
        self._call(f"{self._kinds.pop(descriptor)}Destroy", ctypes.c_void_p(descriptor))

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        """See `Library.heuristic`."""
        results, number = (_Result * count)(), ctypes.c_int()
        layouts = matmul.a_layout, matmul.b_layout, matmul.c_layout, matmul.d_layout
        with self._contexts.current(self._devices[handle]):
            self._call(
                "MatmulAlgoGetHeuristic",
                *map(ctypes.c_void_p, (handle, matmul.desc, *layouts, preference)),
                ctypes.c_int(count),
                results,
                ctypes.byref(number),
            )
        return [
            Found(bytes(result.algorithm), int(result.workspace_bytes), self._config(result.algorithm))
            for result in results[: number.value]
            if result.state == 0
        ]

    def bound(self, handle: int, matmul: Matmul) -> Call:
        """See `Library.bound`. Arguments are converted once; a call is one call into the library."""
        pointer = ctypes.c_void_p
        alpha, beta = ctypes.c_float(matmul.alpha), ctypes.c_float(matmul.beta)
        algorithm = (ctypes.c_uint64 * (ALGORITHM_BYTES // 8)).from_buffer_copy(matmul.algorithm)
        arguments = (
            *(pointer(handle), pointer(matmul.desc), ctypes.byref(alpha)),
            *map(pointer, (matmul.a, matmul.a_layout, matmul.b, matmul.b_layout)),
            ctypes.byref(beta),
            *map(pointer, (matmul.c, matmul.c_layout, matmul.d, matmul.d_layout)),
            algorithm,
            pointer(matmul.workspace),
            ctypes.c_size_t(matmul.workspace_bytes),
            pointer(matmul.stream),
        )
        function = self._library.cublasLtMatmul

        def call() -> None:
            if status := function(*arguments):
                raise self._error("Matmul", status)

        return call

    def rounding(self, handle: int, dtype: DataType, *, source: int, target: int, count: int, stream: int) -> Call:
        """See `Library.rounding`. A call is one launch by the driver."""
        name, code = KERNELS[dtype.name]
        try:
            launch = self._contexts.kernel(self._devices[handle], name, code)
        except OSError as error:
            raise CublasError(str(error)) from error
        values = (ctypes.c_uint64(source), ctypes.c_uint64(target), ctypes.c_uint64(count))
        arguments = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        blocks = -(-count // THREADS)

        def call() -> None:
            try:
                launch(blocks, THREADS, stream, arguments)
            except OSError as error:
                raise CublasError(str(error)) from error

        call.__dict__["keeps"] = values
        return call

    def _config(self, algorithm: Any) -> dict[Config, int]:
        return {each: self._read("MatmulAlgoConfigGetAttribute", algorithm, each) for each in Config}

    def _read(self, function: str, of: Any, attribute: Desc | Layout | Preference | Config) -> int:
        data, size = ctypes.create_string_buffer(_WIDTHS.get(attribute, 4)), ctypes.c_size_t()
        self._call(
            function,
            of,
            ctypes.c_int(attribute.value),
            data,
            ctypes.c_size_t(len(data)),
            ctypes.byref(size),
        )
        return int.from_bytes(data.raw[: size.value], "little")

    def _made(self, function: str, *arguments: Any, kind: str = "") -> int:
        made = ctypes.c_void_p()
        self._call(function, ctypes.byref(made), *arguments)
        assert made.value is not None
        self._kinds[made.value] = kind
        return made.value

    def _call(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._library, f"cublasLt{function}")(*arguments):
            raise self._error(function, status)

    def _error(self, function: str, status: int) -> Exception:
        word = self._library.cublasLtGetStatusString(status)
        text = f"cublasLt{function}: {word.decode() if word else status}"
        if status == _ALLOC_FAILED:
            return DeviceMemoryError("cuda", text)
        return NotSupportedError(text) if status in _OF_A_PRODUCT else CublasError(text)
