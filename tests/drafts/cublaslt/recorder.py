"""cuBLASLt without a GPU: the calls are written down, and carried out in the CPU's memory when somebody waits.

Descriptors are the real library's where there is one, else notes. What needs a device is imitated from the library's
documentation: the heuristic gives algorithms that keep the limits of the preferences, and a product reads nothing but
descriptors and addresses, and does nothing before the stream comes to it.
"""

from __future__ import annotations

import collections
import ctypes
import enum
import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Buffer, TensorSpec
from tests.drafts.cublaslt.library import (
    ALGORITHM_BYTES,
    CublasError,
    DataType,
    Desc,
    Descriptors,
    Epilogue,
    Found,
    Layout,
    Matmul,
    Preference,
)

STREAM = 7
_NUMPY = {
    DataType.R_32F: np.dtype(np.float32),
    DataType.R_16F: np.dtype(np.float16),
    DataType.R_16BF: np.dtype(ml_dtypes.bfloat16),
}
_WORKSPACES = (1 << 20, 0, 1 << 12, 1 << 40)
"""What the imitated algorithms need, in the order of preference; the last more than anybody gives."""


class Notes:
    """Descriptors without the library."""

    def __init__(self) -> None:
        self._attributes: dict[int, dict[enum.Enum, int]] = {}
        self._numbers = itertools.count(1)

    def version(self) -> int:
        return 130000

    def matmul_desc(self, compute: int, scale: DataType) -> int:
        return self._new({Desc.TRANSA: 0, Desc.TRANSB: 0, Desc.EPILOGUE: 1, Desc.BIAS_POINTER: 0})

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        return self._new({Layout.TYPE: dtype, Layout.ROWS: rows, Layout.COLS: cols, Layout.LD: ld})

    def preference(self) -> int:
        return self._new({})

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        self._attributes[descriptor][attribute] = value

    def get(self, descriptor: int, attribute: Desc | Layout) -> int:
        return self._attributes[descriptor][attribute]

    def _new(self, attributes: dict[enum.Enum, int]) -> int:
        number = next(self._numbers)
        self._attributes[number] = attributes
        return number


class Recorder:
    """A `Library`.

    Args:
        descriptors: Keeps descriptors.

    Attributes:
        calls: Names of the calls that need a device, in order.
        asked: How many algorithms each call of the heuristic wanted.
        preferences: What was preferred, by preference.
    """

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        self._descriptors = descriptors or Notes()
        self._queues: dict[int, collections.deque[Callable[[], None]]] = collections.defaultdict(collections.deque)
        self.calls: list[str] = []
        self.asked: list[int] = []
        self.preferences: dict[int, dict[Preference, int]] = collections.defaultdict(dict)

    def version(self) -> int:
        return self._descriptors.version()

    def matmul_desc(self, compute: int, scale: DataType) -> int:
        return self._descriptors.matmul_desc(compute, scale)

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        return self._descriptors.layout(dtype, rows, cols, ld)

    def preference(self) -> int:
        return self._descriptors.preference()

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        if isinstance(attribute, Preference):
            self.preferences[descriptor][attribute] = value
        self._descriptors.set(descriptor, attribute, value)

    def get(self, descriptor: int, attribute: Desc | Layout) -> int:
        return self._descriptors.get(descriptor, attribute)

    def create(self) -> int:
        self.calls.append("create")
        return 1

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        self.calls.append("heuristic")
        self.asked.append(count)
        limit = self.preferences[preference][Preference.MAX_WORKSPACE_BYTES]
        found = [
            Found(bytes([number]) * ALGORITHM_BYTES, size)
            for number, size in enumerate(_WORKSPACES, start=1)
            if size <= limit
        ]
        return found[:count]

    def enqueue(self, handle: int, matmul: Matmul) -> None:
        self.calls.append("enqueue")
        number = matmul.algorithm[0]
        if matmul.algorithm != bytes([number]) * ALGORITHM_BYTES or number > len(_WORKSPACES):
            raise CublasError("cublasLtMatmul: the algorithm is none of this library")
        if matmul.workspace_bytes < _WORKSPACES[number - 1] or (matmul.workspace_bytes and not matmul.workspace):
            raise CublasError("cublasLtMatmul: an unsupported value or parameter was passed to the function")
        pointers = (matmul.a, matmul.b, matmul.d, matmul.workspace)
        if any(pointer % DEVICE_ALIGNMENT_BYTES for pointer in pointers):
            raise CublasError("cublasLtMatmul: a place is less aligned than the algorithm was chosen for")
        self._queues[matmul.stream].append(lambda: self._multiply(matmul))

    def wait(self, stream: int = STREAM) -> None:
        """Lets a stream come to its end."""
        while self._queues[stream]:
            self._queues[stream].popleft()()

    def _multiply(self, matmul: Matmul) -> None:
        get = self._descriptors.get
        epilogue = Epilogue(get(matmul.desc, Desc.EPILOGUE))
        a, b = self._matrix(matmul.a, matmul.a_layout), self._matrix(matmul.b, matmul.b_layout)
        left = a.T if get(matmul.desc, Desc.TRANSA) else a
        right = b.T if get(matmul.desc, Desc.TRANSB) else b
        result = matmul.alpha * (left.astype(np.float32) @ right.astype(np.float32))
        if epilogue & Epilogue.BIAS:
            size = result.shape[0]
            result += _array(get(matmul.desc, Desc.BIAS_POINTER), (size,), a.dtype).astype(np.float32)[:, None]
        if epilogue & Epilogue.RELU:
            result = np.maximum(result, 0)
        if epilogue & Epilogue.GELU:
            result = 0.5 * result * (1 + np.tanh(np.sqrt(2 / np.pi) * (result + 0.044715 * result**3)))
        self._matrix(matmul.d, matmul.d_layout)[...] = result.astype(a.dtype)
        if matmul.workspace_bytes:  # an algorithm may leave anything there
            ctypes.memset(matmul.workspace, 0xFF, matmul.workspace_bytes)

    def _matrix(self, pointer: int, layout: int) -> np.ndarray[Any, Any]:
        """A column-major matrix in memory."""
        rows, cols, ld = (self._descriptors.get(layout, each) for each in (Layout.ROWS, Layout.COLS, Layout.LD))
        assert ld >= rows
        dtype = _NUMPY[DataType(self._descriptors.get(layout, Layout.TYPE))]
        return _array(pointer, (cols, ld), dtype)[:, :rows].T


class HostMemory:
    """Memory of an imitated device: the CPU's, but nobody is told, and it is reached through the stream.

    Args:
        recorder: Whose stream.
    """

    stream = STREAM

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._arrays: dict[int, np.ndarray[Any, Any]] = {}

    def buffer(self, spec: TensorSpec) -> Buffer:
        raw = np.empty(spec.nbytes + DEVICE_ALIGNMENT_BYTES, np.uint8)
        start = -raw.ctypes.data % DEVICE_ALIGNMENT_BYTES
        array = raw[start : start + spec.nbytes].view(spec.numpy_dtype).reshape(spec.static_shape)
        self._arrays[array.ctypes.data] = array
        return Buffer.at(spec, device="cuda:0", pointer=array.ctypes.data, keeps=array)

    def write(self, buffer: Buffer, array: np.ndarray[Any, Any]) -> None:
        self._recorder.wait()
        np.copyto(self._arrays[buffer.pointer], array)

    def read(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        self._recorder.wait()
        return self._arrays[buffer.pointer].copy()


def _array(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(pointer)
    array: np.ndarray[Any, Any] = np.ctypeslib.as_array(memory).view(dtype).reshape(shape)
    return array
