"""From operators to one term per output: a value's element at an index is asked for, and its operator asks on.

So index work costs nothing but arithmetic on indices, what nobody reads is never made, and any chain of operators
becomes one expression of the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx_ir

from collage_core.ir.values.content import constant_of
from collage_triton.elements import FLOATS, element_type
from collage_triton.errors import Refused
from collage_triton.terms import Term, Terms, Var

Index: TypeAlias = tuple[Term, ...]

LARGEST = 1 << 30
"""Most elements of a tensor: offsets are 32 bits wide, those beyond the end of the last block included."""


class Expander:
    """Makes terms of values.

    Args:
        leaves: Parameter by value, for what is read from memory.
        rules: What each operator's element is.
        precision: How products of float32 are made: `"ieee"` or `"tf32"`.

    Attributes:
        terms: Makes the terms.
        rows: Loop variables that reductions depend on from outside: each value of these is one row.
        reduced_rows: Of each reduction, how many different rows there are.
        products: Nodes whose products were asked for.
    """

    def __init__(self, leaves: Mapping[onnx_ir.Value, str], rules: Mapping[str, Rule], precision: str = "ieee") -> None:
        self.terms = Terms()
        self.precision = precision
        self.rows: set[Var] = set()
        self.reduced_rows: dict[Term, int] = {}
        self.products: set[onnx_ir.Node] = set()
        self._leaves = leaves
        self._rules = rules
        self._known: dict[Any, Term] = {}

    def at(self, value: onnx_ir.Value, index: Index) -> Term:
        """A value's element.

        Raises:
            Refused: If an operator on the way has no rule, or none for this case.
        """
        assert len(index) == len(shape_of(value)), f"{value.name}: {len(index)} indices of {shape_of(value)}"
        key = (value, index)
        if key not in self._known:
            self._known[key] = self._expanded(value, index)
        return self._known[key]

    def broadcast(self, value: onnx_ir.Value, index: Index) -> Term:
        """The element NumPy's broadcasting pairs with an index of the result."""
        shape = shape_of(value)
        own = index[len(index) - len(shape) :]
        zero = self.terms.index(0)
        return self.at(value, tuple(zero if extent == 1 else at for at, extent in zip(own, shape, strict=True)))

    def wide(self, value: onnx_ir.Value, index: Index) -> Term:
        """An element to compute with: 16-bit floats as float32."""
        term = self.at(value, index)
        return self.terms.cast(term, "f32") if term.dtype in FLOATS else term

    def _expanded(self, value: onnx_ir.Value, index: Index) -> Term:
        terms = self.terms
        dtype = dtype_of(value)
        constant = constant_of(value)
        if constant is not None and constant.size == 1:
            return terms.cast(
                terms.const(np.asarray(constant.numpy()).astype(object).item(), "f32" if dtype in FLOATS else dtype),
                dtype,
            )
        if value in self._leaves:
            return terms.load(self._leaves[value], terms.ravel(index, shape_of(value)), dtype)
        node = value.producer()
        if node is None:
            raise Refused(f"nothing is known of {value.name!r}")
        rule = self._rules.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        if rule is None:
            raise Refused(f"it has no loop nest for {node.op_identifier()[1]}")
        before, terms.origin = terms.origin, node.op_type
        try:
            return terms.cast(rule(self, node, value, index), dtype)
        finally:
            terms.origin = before


Rule: TypeAlias = Callable[[Expander, onnx_ir.Node, onnx_ir.Value, Index], Term]
"""An operator's element: of which node, of which of its outputs, at which index."""


def shape_of(value: onnx_ir.Value) -> tuple[int, ...]:
    """Static shape of a value.

    Raises:
        Refused: If it is not known, or has more elements than offsets can say, be they read, written or in between.
    """
    shape = value.shape
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        raise Refused(f"the shape of {value.name!r} is not known before it runs; loops are compiled for one")
    extents = tuple(int(extent) for extent in shape.numpy())
    if math.prod(extents) > LARGEST:
        raise Refused(f"{value.name!r} has {math.prod(extents)} elements; offsets are 32 bits wide")
    return extents


def dtype_of(value: onnx_ir.Value) -> str:
    """Element type of a value.

    Raises:
        Refused: If there are no terms of it.
    """
    return element_type(value.dtype, str(value.name))


def attribute(node: onnx_ir.Node, name: str, default: Any = None) -> Any:
    """Value of an attribute, or `default`."""
    given = node.attributes.get(name)
    return default if given is None else given.value


def operand(node: onnx_ir.Node, place: int) -> onnx_ir.Value | None:
    """An input, None where it was left out."""
    return node.inputs[place] if place < len(node.inputs) else None


def required(node: onnx_ir.Node, place: int) -> onnx_ir.Value:
    """An input that is there.

    Raises:
        Refused: If it is not.
    """
    value = operand(node, place)
    if value is None:
        raise Refused(f"input {place} of {node.op_type} is left out")
    return value


def numbers(node: onnx_ir.Node, place: int, name: str) -> tuple[int, ...] | None:
    """Integers given by an input, or in older versions of the operator by an attribute; None if by neither.

    Raises:
        Refused: If they are computed.
    """
    value = operand(node, place)
    if value is None:
        given = attribute(node, name)
        return None if given is None else tuple(int(each) for each in given)
    constant = constant_of(value)
    if constant is None:
        raise Refused(f"the {name} of {node.op_type} are computed; loops are compiled for known ones")
    return tuple(int(each) for each in np.asarray(constant.numpy()).reshape(-1))


def axis_of(node: onnx_ir.Node, rank: int, default: int) -> int:
    """The attribute `axis`, counted from the front."""
    axis = int(attribute(node, "axis", default))
    return axis + rank if axis < 0 else axis
