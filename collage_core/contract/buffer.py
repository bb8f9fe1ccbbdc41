"""Storage of a value at run time."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import onnx_ir

from collage_core.errors import KernelError
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

ALIGNMENT_BYTES: Final = 64
"""Alignment of buffers allocated by core in CPU memory: a cache line, the widest vector register."""

DEVICE_ALIGNMENT_BYTES: Final = 256
"""Alignment of buffers allocated by core in device memory, equal to that of `cudaMalloc`."""


class Buffer:
    """Storage of one value at run time, owned by the caller of a kernel.

    A planned buffer is one C-contiguous array for its whole life, so a kernel may keep its address. A bounded
    buffer has storage for the bound and a current shape. A foreign buffer holds the object that was put last.

    Buffers allocated by core (values between kernels, workspace) are aligned to `ALIGNMENT_BYTES` in CPU memory
    and to `DEVICE_ALIGNMENT_BYTES` on a device. A caller's own arrays, bound as inputs and outputs of a model,
    and weights are aligned to the element size only: a kernel with stricter requirements checks `pointer` when
    it is bound.

    Buffers of tensors in CPU memory support DLPack through `__dlpack__`. Buffers of another device have no array:
    kernels use `pointer` and `device`.

    Args:
        spec: Specification of the value.
        storage: For planned and bounded values, a C-contiguous array of the dtype: of the static shape, or
            one-dimensional with at least as many elements as the bound.

    Attributes:
        spec: Specification of the value.
        device: Device that holds the value: `"cpu"`, `"cuda:0"`.

    Raises:
        KernelError: If `storage` does not fit `spec`.
    """

    __slots__ = ("_pointer", "_storage", "_value", "device", "spec")

    def __init__(self, spec: TensorSpec, storage: np.ndarray[Any, Any] | None = None) -> None:
        self.spec = spec
        self.device = "cpu"
        self._pointer = 0
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

    @classmethod
    def at(cls, spec: TensorSpec, *, device: str, pointer: int, keeps: Any = None) -> Self:
        """Create a planned buffer over device memory.

        Args:
            spec: Spec of the value in the buffer.
            device: Name of the device that has the memory.
            pointer: Address in the device's memory.
            keeps: Owner of the memory, kept alive as long as the buffer.

        Raises:
            KernelError: If the value is not a planned one, or the device is the CPU, where a buffer has an array.
        """
        if spec.kind is not ValueKind.PLANNED or device == "cpu":
            raise KernelError(f"value {spec.name!r} cannot be at an address of {device}: it is {spec.kind.value}")
        buffer = cls.__new__(cls)
        buffer.spec, buffer.device = spec, device
        buffer._pointer, buffer._storage, buffer._value = pointer, None, keeps
        return buffer

    @property
    def pointer(self) -> int:
        """Address of the first element, in the memory of `device`; fixed for a planned buffer.

        Raises:
            KernelError: If the value is foreign and not an array.
        """
        return self._pointer if self.device != "cpu" else int(self.array.ctypes.data)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The current tensor: the fixed array if planned, the part in use if bounded.

        Raises:
            KernelError: If the value is foreign and not an array, or not in CPU memory.
        """
        if self.device != "cpu":
            raise KernelError(f"value {self.spec.name!r} lives on {self.device}; use its pointer")
        if isinstance(self._value, np.ndarray):
            return self._value
        raise KernelError(f"value {self.spec.name!r} holds {type(self._value).__name__}, not a tensor")

    @property
    def value(self) -> Any:
        """The current content of the buffer, of any kind.

        Raises:
            KernelError: If it is not in CPU memory.
        """
        return self._value if self.device == "cpu" else self.array

    def put(self, value: Any) -> None:
        """Store a kernel output or an input: copy it if planned or bounded, keep a reference if foreign.

        Raises:
            KernelError: If shape or dtype do not fit, or the buffer is not in the CPU's memory.
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
            np.copyto(self.array, array)
            return
        bound = spec.static_shape
        if array.ndim != len(bound) or any(n > m for n, m in zip(array.shape, bound, strict=True)):
            raise KernelError(f"value {spec.name!r} is at most {bound}, got {array.shape}")
        assert self._storage is not None
        place = self._storage[: array.size].reshape(array.shape)
        np.copyto(place, array)
        self._value = place

    def __dlpack__(self, **options: Any) -> Any:
        array = self.array
        return (array if array.flags.writeable else _shown_writeable(array)).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


def buffer_over(name: str, array: np.ndarray[Any, Any]) -> Buffer:
    """Create a planned buffer over a C-contiguous array in the CPU's memory, without copying.

    Raises:
        KernelError: If the array is not C-contiguous.
    """
    return Buffer(TensorSpec(name=name, dtype=onnx_ir.DataType.from_numpy(array.dtype), shape=array.shape), array)


class _Shown:
    """A read-only array presented as writable; keeps the array alive."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        interface = dict(array.__array_interface__)
        self.__array_interface__ = interface | {"data": (interface["data"][0], False)}


def _shown_writeable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array as a writeable view, for export through DLPack.

    DLPack before 1.0, which most libraries speak, cannot express read-only. No kernel writes an input or a weight.
    """
    shown: np.ndarray[Any, Any] = np.asarray(_Shown(array))
    return shown
