"""Expand operators into one term per output: a request for an element recurses through the operators.

Index transformations therefore cost only index arithmetic, unread elements are never computed, and any chain of
operators becomes one expression of the inputs.
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
"""Most elements of a tensor: offsets are 32 bits wide, including those beyond the end of the last block."""


class Expander:
    """Expands values into terms.

    Args:
        leaves: Parameter names by value, for values that are read from memory.
        rules: Expansion rule by operator.
        precision: Precision of float32 products: `"ieee"` or `"tf32"`.

    Attributes:
        terms: Creates the terms.
        rows: Free loop variables of reductions: each combination of their values is one row.
        reduced_rows: Number of different rows by reduction.
        products: Nodes whose products were requested.
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
        """Return an element of a value as a term.

        Raises:
            Refused: If an operator on the way has no rule, or none for this case.
        """
        assert len(index) == len(shape_of(value)), f"{value.name}: {len(index)} indices of {shape_of(value)}"
        key = (value, index)
        if key not in self._known:
            self._known[key] = self._expanded(value, index)
        return self._known[key]

    def broadcast(self, value: onnx_ir.Value, index: Index) -> Term:
        """Return the element that NumPy's broadcasting pairs with an index of the result."""
        shape = shape_of(value)
        own = index[len(index) - len(shape) :]
        zero = self.terms.index(0)
        return self.at(value, tuple(zero if extent == 1 else at for at, extent in zip(own, shape, strict=True)))

    def wide(self, value: onnx_ir.Value, index: Index) -> Term:
        """Return an element in the type to compute with: 16-bit floats are widened to float32."""
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
"""Returns the term of an operator's element, given the node, one of its outputs, and the index."""


def shape_of(value: onnx_ir.Value) -> tuple[int, ...]:
    """Return the static shape of a value.

    Raises:
        Refused: If it is not known, or has more elements than offsets can address; this includes intermediate
            values.
    """
    shape = value.shape
    if shape is None or not all(isinstance(extent, int) for extent in shape):
        raise Refused(f"the shape of {value.name!r} is not known before it runs; loops are compiled for one")
    extents = tuple(int(extent) for extent in shape.numpy())
    if math.prod(extents) > LARGEST:
        raise Refused(f"{value.name!r} has {math.prod(extents)} elements; offsets are 32 bits wide")
    return extents


def dtype_of(value: onnx_ir.Value) -> str:
    """Return the element type of a value.

    Raises:
        Refused: If terms do not support the type.
    """
    return element_type(value.dtype, str(value.name))


def attribute(node: onnx_ir.Node, name: str, default: Any = None) -> Any:
    """Return the value of an attribute, or `default`."""
    given = node.attributes.get(name)
    return default if given is None else given.value


def operand(node: onnx_ir.Node, place: int) -> onnx_ir.Value | None:
    """Return an input, or None if it was omitted."""
    return node.inputs[place] if place < len(node.inputs) else None


def required(node: onnx_ir.Node, place: int) -> onnx_ir.Value:
    """Return an input that must be present.

    Raises:
        Refused: If it is omitted.
    """
    value = operand(node, place)
    if value is None:
        raise Refused(f"input {place} of {node.op_type} is left out")
    return value


def numbers(node: onnx_ir.Node, place: int, name: str) -> tuple[int, ...] | None:
    """Return the integers of an input, or in older versions of an attribute; None if neither is given.

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
    """Return the attribute `axis`, counted from the front."""
    axis = int(attribute(node, "axis", default))
    return axis + rank if axis < 0 else axis
