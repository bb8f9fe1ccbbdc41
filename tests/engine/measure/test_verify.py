"""Results are in the caller's memory and in no other."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
import onnx_ir
import pytest

from collage.measure.worker.guarded_memory import aligned_buffer, overrun
from collage.measure.worker.verdicts import aliased
from collage_core.contract import Buffer, TensorSpec, ValueKind

pytestmark = pytest.mark.guards(
    "one wrong element, NaN, a shape off by one, an element never written, an input written, an output "
    "added to, the caller's memory replaced or aliased"
)

Call = Callable[[list[Buffer], list[Buffer]], None]


def planned(name: str) -> Buffer:
    return aligned_buffer(TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=(4,)))


def foreign(name: str) -> Buffer:
    return aligned_buffer(TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=None, kind=ValueKind.FOREIGN))


def found(call: Call, outputs: list[Buffer]) -> str:
    """What is said of a call with a planned input `x` and a foreign one `s` that holds a sequence."""
    inputs = [planned("x"), foreign("s")]
    inputs[1].put([np.zeros(3, np.float32), np.ones(2, np.float32)])
    places = [buffer.value for buffer in (*inputs, *outputs)]
    call(inputs, outputs)
    return aliased(inputs, outputs, places)


def replace_output(inputs: list[Buffer], outputs: list[Buffer]) -> None:
    outputs[0]._value = inputs[0].array + 1


def replace_input(inputs: list[Buffer], outputs: list[Buffer]) -> None:
    inputs[0]._value = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda inputs, outputs: outputs[0].put(np.ones(4, np.float32)), ""),
        (replace_output, "it replaced the memory of 'y', which is its caller's"),
        (replace_input, "it replaced the memory of 'x', which is its caller's"),
    ],
)
def test_planned_values_stay_where_they_are(call: Call, reason: str) -> None:
    assert found(call, [planned("y")]) == reason


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda inputs, outputs: outputs[0].put(inputs[0].array.copy()), ""),
        (lambda inputs, outputs: outputs[0].put([np.array(a) for a in inputs[1].value]), ""),
        (lambda inputs, outputs: outputs[0].put(inputs[0].array[1:3]), "its output 'y' is the memory of its input 'x'"),
        (lambda inputs, outputs: outputs[0].put(inputs[1].value[1]), "its output 'y' is the memory of its input 's'"),
        (lambda inputs, outputs: outputs[0].put([inputs[0].array]), "its output 'y' is the memory of its input 'x'"),
        (lambda inputs, outputs: outputs[0].put(outputs[1].array), "its output 'z' is the memory of its output 'y'"),
        (lambda inputs, outputs: outputs[0].put(inputs[0].array[:0]), ""),
    ],
)
def test_what_is_passed_on_is_memory_of_its_own(call: Call, reason: str) -> None:
    assert found(call, [foreign("y"), planned("z")]) == reason


@pytest.mark.parametrize("beyond", [0, 4])
@pytest.mark.parametrize("offset", [-64, -1, 16, 20, 79])
def test_writing_beside_a_buffer_is_noticed(offset: int, beyond: int) -> None:
    buffer = aligned_buffer(TensorSpec(name="y", dtype=onnx_ir.DataType.FLOAT, shape=(4,)), beyond=beyond)
    buffer.array.view(np.uint8).fill(0xFF)
    assert overrun(buffer) == ""

    ctypes.memset(buffer.array.ctypes.data + offset, 0, 1)

    assert overrun(buffer) == ("before" if offset < 0 else "behind")
    assert (buffer.array.view(np.uint8) == 0xFF).all()
