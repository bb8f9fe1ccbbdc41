"""Where the steps of a kernel find their tensors, and what is refused."""

from __future__ import annotations

from typing import Any

import onnx_ir
import pytest

from collage_core.contract import Buffer, TensorSpec
from collage_core.errors import KernelError
from collage_cuda.contexts import DeviceArray
from collage_cuda.places import BoundPlaces, Place


def at(pointer: int, name: str = "x") -> Buffer:
    spec = TensorSpec(name=name, dtype=onnx_ir.DataType.FLOAT, shape=(2,))
    return Buffer.at(spec, device="cuda:0", pointer=pointer)


def bound(**fields: Any) -> BoundPlaces:
    usual: dict[str, Any] = {
        "inputs": [at(0x100), at(0x200)],
        "outputs": [at(0x300)],
        "workspace": at(0x1000),
        "weights": {"w": at(0x400)},
        "made": {0: DeviceArray(0x500), "v": DeviceArray(0x600)},
    }
    return BoundPlaces(**(usual | fields))


@pytest.mark.parametrize(
    ("place", "address"),
    [
        (Place("input", 1), 0x200),
        (Place("output", 0), 0x300),
        (Place("weight", "w"), 0x400),
        (Place("made", 0), 0x500),
        (Place("made", "v"), 0x600),
        (Place("scratch", 256), 0x1100),
    ],
)
def test_each_kind_of_place_has_an_address(place: Place, address: int) -> None:
    assert bound().address(place) == address


def test_a_missing_workspace_and_an_address_between_vectors_are_refused() -> None:
    bound().check(64, "vectors are read")
    bound(workspace=None).check(0, "vectors are read")
    with pytest.raises(KernelError, match="its steps need 64 bytes of workspace"):
        bound(workspace=None).check(64, "vectors are read")
    with pytest.raises(KernelError, match=r"'x' is at 0x104; vectors are read at multiples of 256: copy it to one"):
        bound(inputs=[at(0x104)]).check(0, "vectors are read")


def test_steps_are_called_in_turn_each_time() -> None:
    said: list[str] = []
    call = bound().call([lambda: said.append("one"), lambda: said.append("two")])

    call()
    call()

    assert said == ["one", "two"] * 2
