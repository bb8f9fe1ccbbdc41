"""nvcc and what it makes, without either: a source is its own library, and a fake device does what it says.

What a source means is read from its text alone: types, layouts, the access width and the epilogue, as CUTLASS documents
them (`GemmUniversal`, `Conv2dProblemSize`); activations are written anew with NumPy and `math`, in float64. Nothing is
read but the source, arguments and addresses, nothing is done before the stream comes to it, and what CUTLASS's
`can_implement` refuses is refused.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from collage_core.contract import DEVICE_ALIGNMENT_BYTES
from collage_cutlass.library import Call, CutlassError
from collage_cutlass.problem import Chain, Conv, Gemm, Move
from collage_cutlass.toolkit import CompileError
from collage_testing.kit import stream_of
from collage_testing.kit.fake_hardware import FakeMemory
from collage_testing.kit.fake_stream import FakeStream

Array = np.ndarray[Any, Any]

_NUMPY = {
    "float": np.dtype(np.float32),
    "cutlass::half_t": np.dtype(np.float16),
    "cutlass::bfloat16_t": np.dtype(ml_dtypes.bfloat16),
}
_ACTIVATIONS: Mapping[str, Callable[[Array, float, float], Array]] = {
    "Identity": lambda x, first, second: x,
    "Relu": lambda x, first, second: np.maximum(x, 0),
    "Clip": np.clip,
    "LeakyRelu": lambda x, first, second: np.where(x < 0, first * x, x),
    "Elu": lambda x, first, second: np.where(x < 0, first * np.expm1(x), x),
    "Sigmoid": lambda x, first, second: 1 / (1 + np.exp(-x)),
    "Swish": lambda x, first, second: x / (1 + np.exp(-first * x)),
    "Tanh": lambda x, first, second: np.tanh(x),
    "Softplus": lambda x, first, second: np.logaddexp(x, 0),
    "Gelu": lambda x, first, second: x * np.vectorize(lambda each: 0.5 * math.erfc(-each / math.sqrt(2)))(x),
    "GeluTanh": lambda x, first, second: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def activated(functor: str, x: Array, first: float, second: float) -> Array:
    """An activation of `epilogue.cuh`, by its definition."""
    return _ACTIVATIONS[functor](x, first, second)


class FakeCompiler:
    """A `Compiler`.

    Args:
        refuses: Says why a source is not compiled; empty if it is.

    Attributes:
        asked: Sources and flags, in the order in which they came.
    """

    identity = "nvcc 13.0.88, cutlass 4.2.0.0"
    major = 13

    def __init__(self, refuses: Callable[[str], str] = lambda source: "") -> None:
        self._refuses = refuses
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def compiled(self, source: str, flags: tuple[str, ...], limit_s: float) -> bytes:
        self.asked.append((source, flags))
        if reason := self._refuses(source):
            raise CompileError(reason)
        return source.encode()


@dataclasses.dataclass(frozen=True)
class Said:
    """What a source says of its kernel."""

    element: np.dtype[Any]
    result: np.dtype[Any]
    by_tensor_cores: bool
    access: int
    result_access: int
    b_by_columns: bool
    activation: str
    source: str

    @classmethod
    def of(cls, text: str) -> Said:
        def one(pattern: str) -> str:
            [found] = re.findall(pattern, text, re.MULTILINE)
            return str(found)

        return cls(
            element=_NUMPY[one(r"^using Element = ([\w:]+);")],
            result=_NUMPY[one(r"^using Result = ([\w:]+);")],
            by_tensor_cores=one(r"^using OperatorClass = cutlass::arch::(\w+);") == "OpClassTensorOp",
            access=int(one(r"^constexpr int kAccess = (\d+);")),
            result_access=int(one(r"^constexpr int kResultAccess = (\d+);")),
            b_by_columns="using LayoutB = cutlass::layout::ColumnMajor;" in text,
            activation=one(r"^#define COLLAGE_ACTIVATION (\w+)$"),
            source=one(r"^#define COLLAGE_SOURCE (\w+)$"),
        )


class Emulated:
    """A `Library`.

    Args:
        data: A source.
        calls: Where names of calls are noted down, in order.
    """

    def __init__(self, data: bytes, calls: list[str]) -> None:
        self._said = Said.of(data.decode())
        self.calls = calls

    def gemm(self, problem: Gemm, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        on, said = stream_of(stream), self._said

        def multiply() -> None:
            m, n, k = problem.m, problem.n, problem.k
            for number in range(problem.batch):
                a = self._matrix(on, places["a"], (m, k), (problem.a.ld, 1), number * problem.a.stride, said.element)
                steps = (1, problem.b.ld) if said.b_by_columns else (problem.b.ld, 1)
                b = self._matrix(on, places["b"], (k, n), steps, number * problem.b.stride, said.element)
                beside = None
                if "source" in places:
                    start = number * problem.source.stride
                    beside = self._matrix(on, places["source"], (m, n), (problem.source.ld, 1), start, said.result)
                bias = None
                if "bias" in places:
                    bias = self._matrix(on, places["bias"], (1, n), (0, 1), 0, said.result)
                made = self._finished(self._rounded(a) @ self._rounded(b), chain, bias, beside)
                start = number * problem.result.stride
                self._matrix(on, places["result"], (m, n), (problem.result.ld, 1), start, said.result)[...] = made

        along_b = problem.k if said.b_by_columns else problem.n
        return self._enqueued(on, "gemm", multiply, places, (problem.k, along_b), (problem.n,))

    def conv(self, problem: Conv, chain: Chain, places: Mapping[str, int], device: int, stream: int) -> Call:
        on, said = stream_of(stream), self._said

        def convolve() -> None:
            of = problem
            x = self._rounded(self._packed(on, places["x"], (of.n, of.h, of.w, of.c), said.element))
            weight = self._rounded(self._packed(on, places["filter"], (of.k, of.r, of.s, of.c), said.element))
            total = np.zeros((of.n, of.p, of.q, of.k))
            for p, q, r, s in np.ndindex(of.p, of.q, of.r, of.s):
                h = p * of.strides[0] - of.pads[0] + r * of.dilations[0]
                w = q * of.strides[1] - of.pads[1] + s * of.dilations[1]
                if 0 <= h < of.h and 0 <= w < of.w:
                    total[:, p, q] += x[:, h, w] @ weight[:, r, s].T
            beside = None
            if "source" in places:
                extents = (1, 1, 1, of.k) if of.source_is_vector else total.shape
                beside = self._packed(on, places["source"], extents, said.result)
            bias = self._packed(on, places["bias"], (of.k,), said.result) if "bias" in places else None
            made = self._finished(total, chain, bias, beside)
            self._packed(on, places["result"], total.shape, said.result)[...] = made

        return self._enqueued(on, "conv", convolve, places, (problem.c,), (problem.k,))

    def move(self, move: Move, given: int, result: int, device: int, stream: int) -> Call:
        on, said = stream_of(stream), self._said
        name = " ".join(filter(None, ("turn" * move.turned, "narrow" * move.narrowed)))

        def copied() -> None:
            made = self._packed(on, given, move.extents, said.result)
            made = made.transpose(0, 2, 1) if move.turned else made
            dtype = said.element if move.narrowed else said.result
            self._packed(on, result, made.shape, dtype)[...] = made.astype(dtype)

        return self._enqueued(on, name, copied, {"given": given, "result": result}, (), ())

    def place(self, array: Array, device: int, stream: int) -> FakeMemory:
        self.calls.append(f"place {array.nbytes}")
        assert array.flags.c_contiguous
        on = stream_of(stream)
        made = on.device.allocate(array.nbytes)
        on.device.peek(made.pointer, array.shape, array.dtype)[...] = array
        return made

    def _enqueued(
        self,
        on: FakeStream,
        name: str,
        work: Callable[[], None],
        places: Mapping[str, int],
        read: tuple[int, ...],
        written: tuple[int, ...],
    ) -> Call:
        """What enqueues; `read` and `written` are extents along which elements lie side by side."""

        def call() -> None:
            self.calls.append(name)
            said = self._said
            if any(each % said.access for each in read) or any(each % said.result_access for each in written):
                raise CutlassError(f"collage_{name}: Error Misaligned Operand")
            if any(place % DEVICE_ALIGNMENT_BYTES for place in places.values()):
                raise CutlassError(f"collage_{name}: an address is not aligned")
            on.enqueue(f"cutlass_{name}", work)

        return call

    def _rounded(self, factor: Array) -> Array:
        """A factor as it is multiplied: float32 on tensor cores has 10 bits of fraction."""
        if not (self._said.by_tensor_cores and factor.dtype == np.float32):
            return factor.astype(np.float64)
        bits = np.ascontiguousarray(factor).view(np.uint32)
        return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)

    def _finished(self, x: Array, chain: Chain, bias: Array | None, source: Array | None) -> Array:
        said, beside = self._said, 0.0 if source is None else source.astype(np.float64)
        if said.source == "kScale":
            x = x * beside
        x = x + (0.0 if bias is None else bias.astype(np.float64))
        if said.source == "kBefore":
            x = x + beside
        x = activated(said.activation, x, chain.first, chain.second)
        return (x + beside if said.source == "kAfter" else x).astype(said.result)

    def _packed(self, on: FakeStream, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        return on.device.view(pointer, shape, dtype)

    def _matrix(
        self,
        on: FakeStream,
        pointer: int,
        shape: tuple[int, int],
        steps: tuple[int, int],
        start: int,
        dtype: np.dtype[Any],
    ) -> Array:
        """A matrix by the steps from row to row and from column to column, in elements."""
        (row, column), size = steps, dtype.itemsize
        count = (shape[0] - 1) * row + (shape[1] - 1) * column + 1
        flat = on.device.view(pointer + start * size, (count,), dtype)
        return np.lib.stride_tricks.as_strided(flat, shape, (row * size, column * size))
