"""Whether what a kernel gave is what the reference gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.measure.wire.outcomes import Tolerance
from collage.reference.discrepancy import compare
from collage.reference.rounded import rounded_problem
from collage_core.contract import ALIGNMENT_BYTES, Buffer, TensorSpec, ValueKind

_EXACT_KINDS = "iubOSU"


def aligned_buffer(spec: TensorSpec, *, beyond: int = 0) -> Buffer:
    """A buffer aligned as the runtime's arena aligns: some kernels are slower on other addresses.

    Args:
        spec: What it holds.
        beyond: Bytes after such an address at which it is to start.
    """
    if spec.kind is ValueKind.FOREIGN:
        return Buffer(spec)
    raw = np.empty(spec.nbytes + ALIGNMENT_BYTES + beyond, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES + beyond
    return Buffer(spec, raw[start : start + spec.nbytes].view(spec.numpy_dtype).reshape(spec.static_shape))


def spoil(buffer: Buffer, expected: Any) -> None:
    """Fills a planned output with bits that are wrong everywhere, so that an element not written is seen."""
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
    """Whether a call put something else into the caller's buffers than results, or results nowhere of their own.

    A kernel whose output is its input's memory is right as long as nobody writes there; in a plan somebody does.

    Args:
        inputs: The buffers it read.
        outputs: The buffers it wrote.
        places: What `Buffer.value` of each was before the call, inputs first.

    Returns:
        What is wrong; empty if nothing is.
    """
    for buffer, place in zip((*inputs, *outputs), places, strict=True):
        if buffer.spec.kind is ValueKind.PLANNED and buffer.value is not place:
            return f"it replaced the memory of {buffer.spec.name!r}, which is its caller's"
    for number, output in enumerate(outputs):
        for what, others in (("input", inputs), ("output", outputs[:number])):
            for other in others:
                if _share(output.value, other.value):
                    return f"its output {output.spec.name!r} is the memory of its {what} {other.spec.name!r}"
    return ""


def _share(one: Any, other: Any) -> bool:
    return any(np.may_share_memory(first, second) for first in _arrays(one) for second in _arrays(other))


def _arrays(value: Any) -> list[np.ndarray[Any, Any]]:
    """The arrays with elements in a value."""
    if isinstance(value, np.ndarray):
        return [value] if value.size else []
    return [array for item in value for array in _arrays(item)] if isinstance(value, list | tuple) else []


def judge(
    outputs: Sequence[Buffer], expected: Sequence[Any], tolerance: Tolerance, rounded: Mapping[str, int] | None = None
) -> float | str:
    """Compares a kernel's outputs with what they should be.

    Args:
        outputs: What the kernel wrote.
        expected: What it should have; None where that cannot be said.
        tolerance: How far apart they may be.
        rounded: By name of an output in which rounding to few bits has a say, how many roundings in a row do; see
            `rounded_problem`.

    Returns:
        The largest error of the other floating-point outputs, relative to each one's scale; or what is wrong.
    """
    largest = 0.0
    for buffer, right in zip(outputs, expected, strict=True):
        if right is None:
            continue
        found = compare(buffer.value, right)
        name = buffer.spec.name
        if rounded and name in rounded:
            relative, mismatched = tolerance.relative, tolerance.mismatched
            if problem := rounded_problem(
                found, buffer.value, right, roundings=rounded[name], relative=relative, mismatched=mismatched
            ):
                return f"output {name!r}: {problem}"
            continue
        if found.reason:
            return f"output {name!r}: {found.reason}"
        if np.asarray(right).dtype.kind in _EXACT_KINDS if not isinstance(right, (list, tuple)) else False:
            if found.mismatched_fraction > tolerance.mismatched:
                return f"output {name!r}: {found.mismatched} of {found.total} elements differ"
            continue
        if not found.error <= tolerance.relative:
            return f"output {name!r}: error {found.error:.3g} of the tensor's scale, allowed {tolerance.relative:.3g}"
        largest = max(largest, found.error)
    return largest


def same_bits(one: Any, other: Any) -> bool:
    """Whether two arrays hold the same bits; values without bits of their own pass."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray) or one.dtype.hasobject:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    size = one.dtype.itemsize
    integers = np.dtype(f"u{size}" if size in (1, 2, 4, 8) else "u1")
    first, second = (np.ascontiguousarray(array).reshape(-1).view(integers) for array in (one, other))
    return bool(np.array_equal(first, second))
