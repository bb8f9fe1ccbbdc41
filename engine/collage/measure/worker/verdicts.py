"""Compare a kernel's outputs with the reference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from collage.reference.conditioning import Conditioning
from collage.reference.judge import Judge
from collage_core.contract import Buffer, ValueKind


def spoil(buffer: Buffer, expected: Any) -> None:
    """Fill a planned output with bits that are wrong everywhere, to detect elements that are not written."""
    if buffer.spec.kind is not ValueKind.PLANNED:
        return
    if isinstance(expected, np.ndarray) and expected.dtype == bool and expected.shape == buffer.array.shape:
        np.logical_not(expected, out=buffer.array)
        return
    fill = 0 if buffer.array.dtype == bool else 0xFF  # NaN in every floating-point format, -1 in integers
    buffer.array.reshape(-1).view(np.uint8).fill(fill)
    if isinstance(expected, np.ndarray) and expected.dtype.kind in "iu" and expected.shape == buffer.array.shape:
        np.invert(expected.astype(buffer.array.dtype, copy=False), out=buffer.array)


def aliased(inputs: Sequence[Buffer], outputs: Sequence[Buffer], places: Sequence[Any]) -> str:
    """Check whether a call replaced the caller's buffers or returned outputs that share memory.

    A kernel whose output shares its input's memory is correct only as long as nobody writes there; in a plan,
    other kernels do.

    Args:
        inputs: Buffers that the kernel read.
        outputs: Buffers that the kernel wrote.
        places: `Buffer.value` of each buffer before the call, inputs first.

    Returns:
        A description of the problem; empty if there is none.
    """
    for buffer, place in zip((*inputs, *outputs), places, strict=True):
        if buffer.spec.kind is ValueKind.PLANNED and buffer.value is not place:
            return f"it replaced the memory of {buffer.spec.name!r}, which is its caller's"
    for number, output in enumerate(outputs):
        for what, others in (("input", inputs), ("output", outputs[:number])):
            for other in others:
                if share_memory(output.value, other.value):
                    return f"its output {output.spec.name!r} is the memory of its {what} {other.spec.name!r}"
    return ""


def share_memory(one: Any, other: Any) -> bool:
    """Return whether arrays in two values, which may be lists of arrays, may share memory."""
    return any(np.may_share_memory(first, second) for first in _arrays(one) for second in _arrays(other))


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """Return the non-empty arrays contained in a value."""
    if isinstance(value, np.ndarray):
        return [value] if value.size else []
    return [array for item in value for array in _arrays(item)] if isinstance(value, list | tuple) else []


def judged(
    judge: Judge,
    outputs: Sequence[Buffer],
    expected: Sequence[Any],
    conditioning: Sequence[Conditioning | None],
) -> float | str:
    """Compare a kernel's outputs with the expected values.

    Args:
        judge: Judges values of the kernel's function.
        outputs: Outputs that the kernel wrote.
        expected: Expected values; None where no value can be predicted.
        conditioning: What rounding does to each; None where that is not known.

    Returns:
        The largest error of the floating-point outputs that do not depend on quantisation; or a description of the
        problem.
    """
    largest = 0.0
    for buffer, right, known in zip(outputs, expected, conditioning, strict=True):
        if right is None:
            continue
        verdict = judge.verdict(buffer.spec.name, buffer.value, right, known)
        if verdict.problem:
            return f"output {buffer.spec.name!r}: {verdict.problem}"
        if verdict.is_of_numbers and math.isfinite(verdict.error):
            largest = max(largest, verdict.error)
    return largest


def same_bits(one: Any, other: Any) -> bool:
    """Return whether two arrays hold the same bits; values without a bit representation pass."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.hasobject:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    size = one.dtype.itemsize
    integers = np.dtype(f"u{size}" if size in (1, 2, 4, 8) else "u1")
    first, second = (np.ascontiguousarray(array).reshape(-1).view(integers) for array in (one, other))
    return bool(np.array_equal(first, second))
