"""Places of values: where they are, and how they are shown to libraries."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

from collage_core.contract import Buffer, Host, RunContext, TensorSpec, ValueKind
from collage_core.errors import KernelError

HOST = Host(system="", cpu="", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1)
SPEC = TensorSpec(name="x", dtype=onnx_ir.DataType.FLOAT, shape=(2, 3))


def test_a_buffer_on_the_cpu_says_its_address() -> None:
    array = np.zeros((2, 3), np.float32)

    assert Buffer(SPEC, array).pointer == array.ctypes.data
    assert Buffer(SPEC, array).device == "cpu"


def test_a_buffer_on_a_device_has_an_address_and_no_array() -> None:
    buffer = Buffer.at(SPEC, device="cuda:0", pointer=0x7F0000000100)

    assert (buffer.device, buffer.pointer) == ("cuda:0", 0x7F0000000100)
    for use in (lambda: buffer.array, lambda: buffer.value, lambda: buffer.put(np.zeros((2, 3), np.float32))):
        with pytest.raises(KernelError, match="'x' lives on cuda:0; use its pointer"):
            use()


def test_only_planned_values_lie_on_a_device() -> None:
    bounded = TensorSpec(name="y", kind=ValueKind.BOUNDED, dtype=SPEC.dtype, shape=(None, 3), bound=(2, 3))
    for spec, device in ((bounded, "cuda:0"), (SPEC, "cpu")):
        with pytest.raises(KernelError, match="cannot be at an address"):
            Buffer.at(spec, device=device, pointer=64)


def test_what_owns_the_memory_of_a_device_lives_as_long_as_the_buffer() -> None:
    import weakref

    class Memory:
        pass

    memory = Memory()
    buffer, seen = Buffer.at(SPEC, device="cuda:0", pointer=256, keeps=memory), weakref.ref(memory)
    del memory

    assert seen() is not None
    del buffer
    assert seen() is None


def test_a_read_only_array_is_shown_by_dlpack_without_a_copy() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.flags.writeable = False

    seen = np.from_dlpack(Buffer(SPEC, array))  # NumPy itself refuses the array

    np.testing.assert_array_equal(seen, array)
    assert seen.ctypes.data == array.ctypes.data


def test_a_weight_on_the_cpu_is_the_array_that_was_supplied() -> None:
    weight = np.ones((4, 2), np.float32)
    weight.flags.writeable = False

    buffer = RunContext(threads=1, host=HOST, constants={"hash": weight}).weight("hash")

    assert buffer.array is weight
    assert buffer.spec.static_shape == (4, 2)


def test_a_weight_on_a_device_is_the_copy_all_kernels_share() -> None:
    there = Buffer.at(SPEC, device="cuda:0", pointer=512)
    context = RunContext(
        threads=1, host=HOST, device="cuda:0", constants={"hash": np.zeros((2, 3), np.float32)}, placed={"hash": there}
    )

    assert context.weight("hash") is there
    with pytest.raises(KeyError, match="other"):
        context.weight("other")
