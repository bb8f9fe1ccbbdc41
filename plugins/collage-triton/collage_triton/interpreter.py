"""Run kernels in Triton's interpreter, on NumPy arrays, without a GPU.

Triton decides at import whether it interprets, for the whole process. So a child process does it, and the
caller imports nothing. Requests and answers are a line of JSON and bytes.

    python -m collage_triton.interpreter
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, BinaryIO, Self

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]

_TYPES = {"bool": "u8", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16"} | {
    name: name.replace("uint", "u").replace("int", "i") for name in ("int64", "int32", "int8", "uint8")
}
"""Triton's names of array types; Booleans are bytes."""


class Interpreter:
    """A child process that interprets kernels; a context manager."""

    def __enter__(self) -> Self:
        environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "collage_triton.interpreter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def run(self, source: str, grid: tuple[int, int], arrays: Sequence[Array], outputs: int) -> list[Array]:
        """Run a kernel in the interpreter.

        Args:
            source: Source of its module.
            grid: Number of programs.
            arrays: Its arguments in order, C-contiguous.
            outputs: How many of them, the last ones, it writes.

        Returns:
            The outputs after the run.

        Raises:
            RuntimeError: If it failed, with the child's error message.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        kinds = [[array.dtype.name, list(array.shape)] for array in arrays]
        _send(
            self._process.stdin,
            {"source": source, "grid": grid, "arrays": kinds, "outputs": outputs},
            [array.tobytes() for array in arrays],
        )
        answer = json.loads(self._process.stdout.readline() or '{"error": "the interpreter ended"}')
        if "error" in answer:
            raise RuntimeError(f"{answer['error']}, in\n{source}")
        return _received(self._process.stdout, kinds[len(kinds) - outputs :])


def _send(stream: BinaryIO | Any, head: dict[str, Any], parts: Sequence[bytes]) -> None:
    stream.write(json.dumps(head).encode() + b"\n" + b"".join(parts))
    stream.flush()


def _received(stream: BinaryIO | Any, kinds: Sequence[Any]) -> list[Array]:
    arrays = []
    for name, shape in kinds:
        dtype = np.dtype(name)
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(stream.read(count * dtype.itemsize), dtype).reshape(shape).copy())
    return arrays


class _Argument:
    """An array in the form Triton's interpreter expects of tensors: address, type, and copies between devices.

    Args:
        array: The array.
    """

    def __init__(self, array: Array) -> None:
        self.array = array
        self.dtype = _TYPES[array.dtype.name]

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self) -> Self:
        return self

    def cpu(self) -> Self:
        return self

    def copy_(self, other: object) -> None:
        """Do nothing: the interpreter works on the array itself."""

    def new_empty(self, size: int, device: str) -> _Argument:
        return _Argument(self.array)

    def set_(self, *where: object) -> None:
        """Do nothing: the array is in place already."""

    def storage_offset(self) -> int:
        return 0

    def size(self) -> int:
        return self.array.size

    def stride(self) -> int:
        return 1


def _compute_bfloat16(interpreter: Any) -> None:
    """Fix bfloat16 arithmetic, which the interpreter of Triton 3.9 performs on the integers of the bits.

    It multiplies these integers, and truncates float32 where a device rounds to nearest even.
    """
    builder = interpreter.interpreter_builder
    product, truncated = builder.create_dot, builder.create_fp_trunc

    def widened(handle: Any) -> Any:
        if handle.dtype.scalar.name != "bf16":
            return handle
        numbers = (handle.data.astype(np.uint32) << 16).view(np.float32)
        return interpreter.TensorHandle(numbers, interpreter.tl.float32)

    def create_dot(a: Any, b: Any, *rest: Any) -> Any:
        return product(widened(a), widened(b), *rest)

    def create_fp_trunc(source: Any, wanted: Any) -> Any:
        if (source.dtype.scalar.name, wanted.scalar.name) != ("fp32", "bf16"):
            return truncated(source, wanted)
        rounded = source.data.astype(ml_dtypes.bfloat16).view(np.uint16)
        return interpreter.TensorHandle(rounded, wanted.scalar)

    type(builder).create_dot = staticmethod(create_dot)
    type(builder).create_fp_trunc = staticmethod(create_fp_trunc)


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    from triton.runtime import interpreter

    from collage_triton.module import kernel_of

    # Checks of every sum and product for overflow take half the time, and kernels wrap around as ONNX has it.
    interpreter.interpreter_builder.options = dataclasses.replace(
        interpreter.interpreter_builder.options, sanitize_overflow=False
    )
    _compute_bfloat16(interpreter)
    while line := requests.readline():
        request = json.loads(line)
        arrays = _received(requests, request["arrays"])
        try:
            with np.errstate(all="ignore"):
                kernel_of(request["source"])[tuple(request["grid"])](*map(_Argument, arrays))
        except Exception as error:
            _send(answers, {"error": f"{type(error).__name__}: {error}"}, [])
            continue
        _send(answers, {}, [array.tobytes() for array in arrays[len(arrays) - request["outputs"] :]])


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
