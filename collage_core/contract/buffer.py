"""The place of a value at run time."""

from __future__ import annotations

from typing import Any

import numpy as np

from collage_core.errors import KernelError
from collage_core.ir.tensor_spec import TensorSpec, ValueKind


class Buffer:
    """The place of one value at run time; the caller of a kernel owns it.

    A planned buffer is one C-contiguous array for its whole life, so a kernel may keep its address. A bounded
    buffer has storage for the bound and a current shape. A foreign buffer holds whatever was put last.

    Buffers of tensors speak DLPack through `__dlpack__`.

    Args:
        spec: What it holds.
        storage: For planned and bounded values, a C-contiguous array of the dtype: of the static shape, or
            one-dimensional with at least as many elements as the bound.

    Raises:
        KernelError: If `storage` does not fit `spec`.
    """

    __slots__ = ("_storage", "_value", "spec")

    def __init__(self, spec: TensorSpec, storage: np.ndarray[Any, Any] | None = None) -> None:
        self.spec = spec
        self._storage = storage
        self._value: Any = None
        if spec.kind is ValueKind.FOREIGN:
            return
        if storage is None:
            self._storage = storage = np.empty(spec.static_shape, spec.numpy_dtype)
        if storage.dtype != spec.numpy_dtype or not storage.flags.c_contiguous:
            raise KernelError(f"buffer of {spec.name!r} must be C-contiguous {spec.numpy_dtype}, got {storage.dtype}")
        if spec.kind is ValueKind.PLANNED:
            if storage.shape != spec.static_shape:
                raise KernelError(f"buffer of {spec.name!r} must have shape {spec.static_shape}, got {storage.shape}")
            self._value = storage
        else:
            self._storage = storage.reshape(-1)
            self._value = self._storage[:0].reshape((0,) * max(1, len(spec.static_shape)))

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The tensor as it is now: the fixed array if planned, the part in use if bounded.

        Raises:
            KernelError: If the value is foreign and not an array.
        """
        if isinstance(self._value, np.ndarray):
            return self._value
        raise KernelError(f"value {self.spec.name!r} holds {type(self._value).__name__}, not a tensor")

    @property
    def value(self) -> Any:
        """What the buffer holds now, whatever its kind."""
        return self._value

    def put(self, value: Any) -> None:
        """Stores what a kernel produced, or an input: copies it if planned or bounded, keeps it if foreign.

        Raises:
            KernelError: If shape or dtype do not fit.
        """
        spec = self.spec
        if spec.kind is ValueKind.FOREIGN:
            self._value = value
            return
        array = np.asarray(value)
        if array.dtype != spec.numpy_dtype:
            raise KernelError(f"value {spec.name!r} is {spec.numpy_dtype}, got {array.dtype}")
        if spec.kind is ValueKind.PLANNED:
            if array.shape != spec.static_shape:
                raise KernelError(f"value {spec.name!r} has shape {spec.static_shape}, got {array.shape}")
            np.copyto(self._value, array)
            return
        bound = spec.static_shape
        if array.ndim != len(bound) or any(n > m for n, m in zip(array.shape, bound, strict=True)):
            raise KernelError(f"value {spec.name!r} is at most {bound}, got {array.shape}")
        assert self._storage is not None
        place = self._storage[: array.size].reshape(array.shape)
        np.copyto(place, array)
        self._value = place

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()
