"""Places that start where a library wants them, for libraries that want more than a caller's arrays promise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from collage_core.contract import ALIGNMENT_BYTES, BoundCall, Buffer, ValueKind


@dataclasses.dataclass(frozen=True, slots=True)
class Realigned:
    """Buffers of one call, each planned one aligned: itself where it is, else a place of its own that is copied.

    Code compiled for aligned vectors does not get slower on other addresses, it crashes: TVM's does. Core's own places
    are aligned, so a copy is only made for arrays that a caller binds.

    Attributes:
        inputs: Copied to before the call where they are not the caller's.
        outputs: Copied from after it where they are not.

    Examples:
        >>> from collage_core.contract import TensorSpec
        >>> import onnx_ir
        >>> spec = TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(2,))
        >>> odd = Buffer(spec, np.zeros(100, np.uint8)[4:][:8].view(np.float32))
        >>> Realigned.of([odd], []).inputs[0].pointer % ALIGNMENT_BYTES
        0
    """

    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    _before: tuple[tuple[Buffer, Buffer], ...]
    _after: tuple[tuple[Buffer, Buffer], ...]

    @classmethod
    def of(cls, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Realigned:
        """The buffers of a kernel, as `bind` is given them."""
        inside, outside = tuple(map(aligned, inputs)), tuple(map(aligned, outputs))
        before = tuple((new, old) for new, old in zip(inside, inputs, strict=True) if new is not old)
        after = tuple((new, old) for new, old in zip(outside, outputs, strict=True) if new is not old)
        return cls(inside, outside, before, after)

    def around(self, call: BoundCall) -> BoundCall:
        """A call with the copies it needs; the call itself if it needs none."""
        if not self._before and not self._after:
            return call
        before, after = self._before, self._after

        def copying_call() -> None:
            for place, given in before:
                np.copyto(place.array, given.array)
            call()
            for place, given in after:
                np.copyto(given.array, place.array)

        return copying_call


def aligned(buffer: Buffer) -> Buffer:
    """A buffer whose address is a multiple of `ALIGNMENT_BYTES`: this one, or a new one that holds the same now."""
    if buffer.device != "cpu" or buffer.spec.kind is not ValueKind.PLANNED or buffer.pointer % ALIGNMENT_BYTES == 0:
        return buffer
    raw = np.empty(buffer.spec.nbytes + ALIGNMENT_BYTES, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    place = raw[start : start + buffer.spec.nbytes].view(buffer.spec.numpy_dtype).reshape(buffer.spec.static_shape)
    place[...] = buffer.array
    return Buffer(buffer.spec, place)
