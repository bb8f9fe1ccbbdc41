"""One node, as the tables of operators see it, in the driver and in the worker alike."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.values.content import constant_of
from collage_halide.elements import ElementType, element_type
from collage_halide.errors import Refused

LARGEST = 1 << 30
"""Most elements of a tensor: indices are 32 bits wide, those beyond the end of the last vector included."""


@dataclasses.dataclass(frozen=True, slots=True)
class Op:
    """A node.

    Attributes:
        node: The node itself.
        version: Opset version of its domain.
    """

    node: onnx_ir.Node
    version: int

    @property
    def name(self) -> str:
        """Its operator."""
        return self.node.op_type

    def has(self, place: int) -> bool:
        """Return whether an input is given."""
        return place < len(self.node.inputs) and self.node.inputs[place] is not None

    def input(self, place: int) -> onnx_ir.Value:
        """Return an input.

        Raises:
            Refused: If it is left out.
        """
        value = self.node.inputs[place] if place < len(self.node.inputs) else None
        if value is None:
            raise Refused(f"input {place} of {self.name} is left out")
        return value

    def shape(self, place: int) -> tuple[int, ...]:
        """Return the shape of an input."""
        return shape_of(self.input(place))

    def kind(self, place: int) -> ElementType:
        """Return the element type of an input."""
        return element_type(self.input(place))

    def result(self, place: int = 0) -> tuple[int, ...]:
        """Return the shape of an output."""
        return shape_of(self.node.outputs[place])

    def result_kind(self, place: int = 0) -> ElementType:
        """Return the element type of an output."""
        return element_type(self.node.outputs[place])

    def uses(self, place: int) -> bool:
        """Return whether somebody reads an output."""
        if place >= len(self.node.outputs):
            return False
        value = self.node.outputs[place]
        return bool(value.name) and (bool(value.uses()) or value.is_graph_output())

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return the value of an attribute, or a default; text, not bytes."""
        given = self.node.attributes.get(name)
        value = default if given is None else given.value
        return value.decode() if isinstance(value, bytes) else value

    def number(self, name: str, default: float) -> float:
        """Return an attribute that is a float."""
        return float(self.attribute(name, default))

    def axis(self, rank: int, default: int, name: str = "axis") -> int:
        """Return an attribute that is an axis, counted from the front."""
        axis = int(self.attribute(name, default))
        return axis + rank if axis < 0 else axis

    def constant(self, place: int) -> np.ndarray[Any, Any] | None:
        """Return a constant input; None if it is left out.

        Raises:
            Refused: If it is computed.
        """
        if not self.has(place):
            return None
        tensor = constant_of(self.input(place))
        if tensor is None:
            raise Refused(f"input {place} of {self.name} is computed; kernels are compiled for known ones")
        return np.asarray(tensor.numpy())

    def numbers(self, place: int, name: str) -> tuple[int, ...] | None:
        """Return the integers of a constant input, or in older versions of an attribute; None if neither is given.

        Raises:
            Refused: If they are computed.
        """
        found = self.constant(place)
        if found is None:
            found = self.attribute(name)
        return None if found is None else tuple(int(each) for each in np.asarray(found).reshape(-1))


def shape_of(value: onnx_ir.Value) -> tuple[int, ...]:
    """Return the static shape of a value.

    Raises:
        Refused: If it is not known, or has more elements than indices can address.
    """
    shape = value.shape
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        raise Refused(f"the shape of {value.name!r} is not known before it runs; kernels are compiled for one")
    extents = tuple(int(extent) for extent in shape.numpy())
    if math.prod(extents) > LARGEST:
        raise Refused(f"{value.name!r} has {math.prod(extents)} elements; indices are 32 bits wide")
    return extents


def without_ones(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents of a shape other than 1."""
    return tuple(extent for extent in shape if extent != 1)
