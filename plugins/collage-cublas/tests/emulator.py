"""cuBLASLt without a GPU: calls are recorded, and carried out by a fake device when its stream comes to them.

Descriptors are the real library's where there is one, else notes. What needs a device is emulated from the library's
documentation (cuBLAS, "cublasLtMatmul" and the types it names): matrices are column-major at `ld` and repeat at the
batch offset; `d = epilogue(alpha * op(a) op(b) + beta * c)`, the bias along the rows of `d`, then the activation, GELU
in the tanh form. Nothing is read but descriptors and addresses, and nothing is done before the stream comes to it. What
the documentation forbids is refused.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from collage_core.contract import DEVICE_ALIGNMENT_BYTES
from collage_cublas.library import (
    ALGORITHM_BYTES,
    Compute,
    Config,
    CublasError,
    DataType,
    Desc,
    Descriptors,
    Epilogue,
    Found,
    Layout,
    Matmul,
    Preference,
    Reduction,
)
from collage_testing.kit import stream_of
from collage_testing.kit.fake_hardware import FakeHardware

_NUMPY = {
    DataType.R_32F: np.dtype(np.float32),
    DataType.R_16F: np.dtype(np.float16),
    DataType.R_16BF: np.dtype(ml_dtypes.bfloat16),
}
_MASK = 7  # CUBLASLT_REDUCTION_SCHEME_MASK


class Notes:
    """Descriptors without the library, with the defaults of `cublasLt.h`."""

    def __init__(self) -> None:
        self.attributes: dict[int, dict[enum.Enum, int]] = {}
        self._numbers = itertools.count(1)

    def version(self) -> int:
        return 130000

    def matmul_desc(self, compute: Compute, scale: DataType) -> int:
        defaults: dict[enum.Enum, int] = {Desc.TRANSA: 0, Desc.TRANSB: 0, Desc.EPILOGUE: 1, Desc.BIAS_POINTER: 0}
        return self._new({Desc.COMPUTE_TYPE: compute, Desc.SCALE_TYPE: scale, **defaults})

    def layout(self, dtype: DataType, rows: int, cols: int, ld: int) -> int:
        sizes: dict[enum.Enum, int] = {Layout.TYPE: dtype, Layout.ROWS: rows, Layout.COLS: cols, Layout.LD: ld}
        return self._new({**sizes, Layout.ORDER: 0, Layout.BATCH_COUNT: 1, Layout.STRIDED_BATCH_OFFSET: 0})

    def preference(self) -> int:
        alignments: dict[enum.Enum, int] = {each: 256 for each in Preference if each.name.startswith("MIN_ALIGNMENT")}
        return self._new({Preference.MAX_WORKSPACE_BYTES: 0, Preference.REDUCTION_SCHEME_MASK: _MASK, **alignments})

    def set(self, descriptor: int, attribute: Desc | Layout | Preference, value: int) -> None:
        assert attribute in self.attributes[descriptor], f"descriptor {descriptor} has no {attribute}"
        self.attributes[descriptor][attribute] = value

    def get(self, descriptor: int, attribute: Desc | Layout | Preference) -> int:
        return self.attributes[descriptor][attribute]

    def destroy(self, descriptor: int) -> None:
        del self.attributes[descriptor]

    def _new(self, attributes: dict[enum.Enum, int]) -> int:
        number = next(self._numbers)
        self.attributes[number] = attributes
        return number


def _found(number: int, workspace: int, splits: int = 1, reduction: Reduction = Reduction.NONE) -> Found:
    config = {
        Config.ID: 60 + number,
        Config.TILE_ID: 20,
        Config.SPLITK_NUM: splits,
        Config.REDUCTION_SCHEME: int(reduction),
        Config.STAGES_ID: 3,
    }
    return Found(bytes([number]) * ALGORITHM_BYTES, workspace, config)


ALGORITHMS = (
    _found(1, 1 << 20, 4, Reduction.COMPUTE_TYPE),
    _found(2, 0),
    _found(3, 1 << 12, 2, Reduction.INPLACE),
    _found(4, 1 << 13, 2, Reduction.OUTPUT_TYPE),
    _found(5, 1 << 40),
)
"""What the emulated heuristic has, in the order of preference; the last needs more than anybody gives."""


class Emulator:
    """A `Library`.

    Args:
        descriptors: Keeps descriptors.

    Attributes:
        descriptors: The same.
        calls: Names of the calls that need a device, in order.
        asked: How many algorithms each call of the heuristic wanted.
        sought: What the heuristic was called with, the attributes of each descriptor by argument.
    """

    def __init__(self, descriptors: Descriptors | None = None) -> None:
        self.descriptors = descriptors or Notes()
        self.calls: list[str] = []
        self.asked: list[int] = []
        self.sought: list[dict[str, dict[enum.Enum, int]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.descriptors, name)

    def create(self, device: str) -> int:
        self.calls.append(f"create {device}")
        return 1

    def heuristic(self, handle: int, matmul: Matmul, preference: int, count: int) -> list[Found]:
        self.calls.append("heuristic")
        self.asked.append(count)
        layouts = {"a": matmul.a_layout, "b": matmul.b_layout, "c": matmul.c_layout, "d": matmul.d_layout}
        self.sought.append({name: self._all(layout, Layout) for name, layout in layouts.items()})
        self.sought[-1]["desc"] = self._all(matmul.desc, Desc)
        wanted = self.sought[-1]["preference"] = self._all(preference, Preference)
        self._check(matmul)
        found = [
            each
            for each in ALGORITHMS
            if each.workspace_bytes <= wanted[Preference.MAX_WORKSPACE_BYTES]
            # a scheme of 0 is no reduction, which no mask keeps out
            and each.config[Config.REDUCTION_SCHEME] & ~wanted[Preference.REDUCTION_SCHEME_MASK] == 0
        ]
        return found[:count]

    def bound(self, handle: int, matmul: Matmul) -> Callable[[], None]:
        def call() -> None:
            self.calls.append("enqueue")
            self._check(matmul)
            found = next((each for each in ALGORITHMS if each.algorithm == matmul.algorithm), None)
            if found is None:
                raise CublasError("cublasLtMatmul: the algorithm is none of this library")
            if matmul.workspace_bytes < found.workspace_bytes or (matmul.workspace_bytes and not matmul.workspace):
                raise CublasError("cublasLtMatmul: an unsupported value or parameter was passed to the function")
            pointers = (matmul.a, matmul.b, matmul.c, matmul.d, matmul.workspace)
            if any(pointer % DEVICE_ALIGNMENT_BYTES for pointer in pointers):
                raise CublasError("cublasLtMatmul: a place is less aligned than the algorithm was chosen for")
            # descriptors are read when a product is enqueued, memory when the stream comes to it
            layouts = (matmul.a_layout, matmul.b_layout, matmul.c_layout, matmul.d_layout)
            attributes = {layout: self._all(layout, Layout) for layout in layouts}
            attributes[matmul.desc] = self._all(matmul.desc, Desc)
            stream = stream_of(matmul.stream)
            stream.enqueue("cublasLtMatmul", lambda: _multiply(stream.device, matmul, attributes))

        return call

    def rounding(
        self, handle: int, dtype: DataType, *, source: int, target: int, count: int, stream: int
    ) -> Callable[[], None]:
        on = stream_of(stream)

        def round_now() -> None:
            numbers = on.device.view(source, (count,), _NUMPY[DataType.R_32F])
            with np.errstate(over="ignore"):
                on.device.view(target, (count,), _NUMPY[dtype])[...] = numbers.astype(_NUMPY[dtype])

        def call() -> None:
            self.calls.append(f"round {count}")
            on.enqueue("round", round_now)

        return call

    def _all(self, descriptor: int, attributes: Any) -> dict[enum.Enum, int]:
        return {each: self.descriptors.get(descriptor, each) for each in attributes}

    def _check(self, matmul: Matmul) -> None:
        """What the documentation demands of layouts."""
        get = self.descriptors.get
        layouts = (matmul.a_layout, matmul.b_layout, matmul.c_layout, matmul.d_layout)
        a, b, c, d = ((get(layout, Layout.ROWS), get(layout, Layout.COLS)) for layout in layouts)
        a = a[::-1] if get(matmul.desc, Desc.TRANSA) else a
        b = b[::-1] if get(matmul.desc, Desc.TRANSB) else b
        if not a[0] == c[0] == d[0] or not b[1] == c[1] == d[1] or a[1] != b[0]:
            raise CublasError(f"cublasLtMatmul: sizes {a}, {b}, {c}, {d} do not fit")
        if len({get(layout, Layout.BATCH_COUNT) for layout in layouts}) > 1:
            raise CublasError("cublasLtMatmul: batch counts differ")
        if any(get(layout, Layout.LD) < get(layout, Layout.ROWS) or get(layout, Layout.ORDER) for layout in layouts):
            raise CublasError("cublasLtMatmul: a leading dimension is smaller than the rows, or the order is another")
        if get(matmul.desc, Desc.SCALE_TYPE) != DataType.R_32F:
            raise CublasError("cublasLtMatmul: factors are float32 for these types of computation")
        types = tuple(DataType(get(layout, Layout.TYPE)) for layout in layouts)
        if types not in _TYPES[Compute(get(matmul.desc, Desc.COMPUTE_TYPE))]:
            raise CublasError(f"cublasLtMatmul: no such combination of types as {types}")
        if get(matmul.desc, Desc.EPILOGUE) & Epilogue.BIAS and not get(matmul.desc, Desc.BIAS_POINTER):
            raise CublasError("cublasLtMatmul: there is no bias")


_Attributes = Mapping[int, Mapping[enum.Enum, int]]
"""Of each descriptor of a call."""


def _multiply(device: FakeHardware, matmul: Matmul, attributes: _Attributes) -> None:
    """What `cublasLtMatmul` does once its stream comes to it."""
    desc = attributes[matmul.desc]
    epilogue = Epilogue(desc[Desc.EPILOGUE])
    results = []
    for number in range(attributes[matmul.d_layout][Layout.BATCH_COUNT]):
        a = _matrix(device, matmul.a, attributes[matmul.a_layout], number)
        b = _matrix(device, matmul.b, attributes[matmul.b_layout], number)
        left = (a.T if desc[Desc.TRANSA] else a).astype(np.float32)
        right = (b.T if desc[Desc.TRANSB] else b).astype(np.float32)
        rounded = _ROUNDED.get(Compute(desc[Desc.COMPUTE_TYPE]))
        if rounded is not None:
            left, right = rounded(left), rounded(right)
        result = np.float32(matmul.alpha) * (left @ right)
        if matmul.beta:
            c = _matrix(device, matmul.c, attributes[matmul.c_layout], number)
            result = result + np.float32(matmul.beta) * c.astype(np.float32)
        if epilogue & Epilogue.BIAS:
            of_result = _NUMPY[DataType(attributes[matmul.d_layout][Layout.TYPE])]
            bias = device.view(desc[Desc.BIAS_POINTER], (result.shape[0],), of_result)
            result = result + bias.astype(np.float32)[:, None]
        if epilogue & Epilogue.RELU:
            result = np.maximum(result, 0)
        if epilogue & Epilogue.GELU:
            result = 0.5 * result * (1 + np.tanh(np.sqrt(2 / np.pi) * (result + 0.044715 * result**3)))
        results.append(result)
    for number, result in enumerate(results):
        place = _matrix(device, matmul.d, attributes[matmul.d_layout], number)
        place[...] = result.astype(place.dtype)
    if matmul.workspace_bytes:  # an algorithm may leave anything there
        device.view(matmul.workspace, (matmul.workspace_bytes,), np.uint8)[:] = 0xFF


def _matrix(device: FakeHardware, pointer: int, layout: Mapping[enum.Enum, int], number: int) -> np.ndarray[Any, Any]:
    """One of a batch of column-major matrices in memory."""
    rows, cols, ld = layout[Layout.ROWS], layout[Layout.COLS], layout[Layout.LD]
    dtype = _NUMPY[DataType(layout[Layout.TYPE])]
    start = pointer + number * layout[Layout.STRIDED_BATCH_OFFSET] * dtype.itemsize
    flat = device.view(start, ((cols - 1) * ld + rows,), dtype)
    return np.lib.stride_tricks.as_strided(flat, (rows, cols), (dtype.itemsize, ld * dtype.itemsize))


def rounded_to_tf32(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float32 with 10 bits of fraction, rounded to nearest, ties away from zero, as PTX's `cvt.rna.tf32.f32`."""
    bits = array.astype(np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def _through(dtype: DataType) -> Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]:
    return lambda array: array.astype(_NUMPY[dtype]).astype(np.float32)


_ROUNDED = {
    Compute.TF32: rounded_to_tf32,
    Compute.FAST_16F: _through(DataType.R_16F),
    Compute.FAST_16BF: _through(DataType.R_16BF),
}
"""What becomes of float32 factors."""

_FLOATS = (DataType.R_32F,) * 4
_TYPES = {
    Compute.F32: {
        _FLOATS,
        *((each,) * 4 for each in DataType),
        *((each, each, DataType.R_32F, DataType.R_32F) for each in DataType),
    },
    **{each: {_FLOATS} for each in _ROUNDED},
}
"""Of A, B, C and D, as the table of `cublasLtMatmul` has them for what is used here; the bias is of D's type."""
