"""The loop nest of a kernel function: loop variables, and what each store writes where.

There are three forms. *Pointwise*: every program computes one block of an output's elements. *Rows*: with a
reduction, the output axes on which its row depends are the rows, one or more per program, and the other
axes are inner; reduced and inner axes share axis 1 of the same tile, so that a row is read once for all.
*Products*: tiles of two output axes, with a loop over the summed axis (`products.py`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import onnx_ir

from collage_core.contract import KernelFunction
from collage_triton.errors import Refused
from collage_triton.expand import Expander, Rule, dtype_of, shape_of
from collage_triton.movement import TRAILING
from collage_triton.products import layout_of
from collage_triton.rules import RULES
from collage_triton.terms import Term, Terms, Var

_WASTE = 16
"""Most times a kernel may repeat the reduction of the same row before the nest is refused."""
_SMALL = 1 << 16
"""Reductions of at most this many terms in total may be repeated any number of times."""


@dataclasses.dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of a kernel.

    Attributes:
        name: Name in the source: `in0`, `w0`, `out0`.
        dtype: Element type.
        place: Number of the function's input or output; name of its constant.
        elements: Number of elements.
    """

    name: str
    dtype: str
    place: int | str
    elements: int

    @classmethod
    def of(cls, value: onnx_ir.Value, kind: str, number: int, place: int | str) -> Parameter:
        """Create the parameter for a value, by its kind: `in`, `w` or `out`.

        Raises:
            Refused: If terms do not support its type, or its shape is not known.
        """
        return cls(f"{kind}{number}", dtype_of(value), place, math.prod(shape_of(value)))


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """The elements of one output, and where they are written.

    Attributes:
        parameter: The output.
        offset: Offset of an element.
        value: Value of an element.
        outer: Loop variable of axis 0, which is divided into blocks, one per program.
        inner: Loop variable of axis 1.
    """

    parameter: str
    offset: Term
    value: Term
    outer: Var
    inner: Var


@dataclasses.dataclass(frozen=True, slots=True)
class Nest:
    """A kernel's loop nest, before source is generated.

    Attributes:
        form: Determines the shapes of tiles.
        parameters: Used arguments, in order.
        stores: Stores of the kernel; empty if no output has elements.
        batch: Loop variable along the grid's second axis, of a product.
    """

    form: Literal["pointwise", "rows", "product"]
    parameters: tuple[Parameter, ...]
    stores: tuple[Store, ...]
    batch: Var | None = None


def nest_of(function: KernelFunction, precision: str = "ieee", rules: Mapping[str, Rule] = RULES) -> Nest:
    """Build the loop nest of a function.

    Args:
        function: One ONNX model whose values have static shapes.
        precision: How float32 products are computed: `"ieee"` or `"tf32"`.
        rules: Rules that expand the operators.

    Raises:
        Refused: If there is none.
    """
    graph = function.model.graph
    leaves: dict[onnx_ir.Value, Parameter] = {}
    for place, value in enumerate(v for v in graph.inputs if not v.is_initializer()):
        if value.dtype is not None and value.uses():
            leaves[value] = Parameter.of(value, "in", place, place)
    for place, (name, value) in enumerate(graph.initializers.items()):
        if value.const_value is not None and value.const_value.size > 1 and _is_read_as_data(value):
            leaves[value] = Parameter.of(value, "w", place, name)
    for value in graph.outputs:
        if value in leaves or value.is_graph_input():
            raise Refused("an output that is an input: nothing is left to generate")
    return nest_over(leaves, graph.outputs, precision, rules)


def nest_over(
    leaves: Mapping[onnx_ir.Value, Parameter],
    outputs: Sequence[onnx_ir.Value],
    precision: str = "ieee",
    rules: Mapping[str, Rule] = RULES,
) -> Nest:
    """Build the loop nest of the operators between some values of a graph, which need not be a graph of its own.

    Args:
        leaves: Values read from memory.
        outputs: Values written.
        precision: As for `nest_of`.
        rules: As for `nest_of`.

    Raises:
        Refused: If there is none.
    """
    maker = _Maker({value: each.name for value, each in leaves.items()}, precision, rules)
    return maker.nest(outputs, list(leaves.values()))


def _is_read_as_data(value: onnx_ir.Value) -> bool:
    """Return whether a value may be a weight.

    Shapes and axes have types that kernels support, too, so only a value of an unsupported type is ruled out.
    """
    try:
        dtype_of(value)
    except Refused:
        return False
    return True


class _Maker:
    def __init__(self, leaves: Mapping[onnx_ir.Value, str], precision: str, rules: Mapping[str, Rule]) -> None:
        self._leaves = leaves
        self._rules = rules
        self._precision = precision

    def nest(self, outputs: Sequence[onnx_ir.Value], leaves: Sequence[Parameter]) -> Nest:
        x = Expander(self._leaves, self._rules, self._precision)
        stores = []
        form: Literal["pointwise", "rows", "product"] = "pointwise"
        written = []
        for place, output in enumerate(outputs):
            parameter = Parameter.of(output, "out", place, place)
            if parameter.elements == 0:
                continue
            stored = self._before_views(output)
            rows = self._rows(stored)
            if isinstance(rows, onnx_ir.Node):
                if len(outputs) > 1:
                    raise Refused("a product with several outputs")
                return self._product(x, parameter, stored, rows, leaves)
            if rows is not None:
                form = "rows"
            stores.append(self._store(x, parameter, stored, rows))
            written.append(parameter)
        used = _loaded([store.value for store in stores])
        parameters = [each for each in leaves if each.name in used] + written
        _check_waste(stores, x.reduced_rows)
        return Nest(form, tuple(parameters), tuple(stores))

    def _rows(self, value: onnx_ir.Value) -> tuple[int, ...] | onnx_ir.Node | None:
        """Return the axes that rows are made of, or the product if there is one; None if nothing is reduced."""
        probe = Expander(self._leaves, self._rules, self._precision)
        axes = [probe.terms.var(f"axis{axis}", None, extent) for axis, extent in enumerate(shape_of(value))]
        probe.at(value, tuple(probe.terms.of(var) for var in axes))
        if probe.products and (probe.reduced_rows or len(probe.products) > 1):
            raise Refused("a kernel has one product, and no reduction beside it")
        if probe.products:
            return next(iter(probe.products))
        return tuple(axis for axis, var in enumerate(axes) if var in probe.rows) if probe.reduced_rows else None

    def _product(
        self, x: Expander, parameter: Parameter, value: onnx_ir.Value, node: onnx_ir.Node, leaves: Sequence[Parameter]
    ) -> Nest:
        shape, own = shape_of(value), shape_of(node.outputs[0])
        if math.prod(shape) != math.prod(own):
            raise Refused(f"what follows {node.op_type} has other elements than its tiles")
        layout = layout_of(x.terms, node)
        offset = x.terms.ravel(layout.index, own)
        index = layout.index if shape == own else x.terms.unravel(offset, shape)  # of views in between
        store = Store(parameter.name, offset, x.at(value, index), layout.outer, layout.inner)
        used = _loaded([store.value])
        parameters = [each for each in leaves if each.name in used]
        return Nest("product", (*parameters, parameter), (store,), layout.batch)

    def _store(self, x: Expander, parameter: Parameter, value: onnx_ir.Value, rows: tuple[int, ...] | None) -> Store:
        t, shape = x.terms, shape_of(value)
        chosen = tuple(range(len(shape))) if rows is None else rows
        others = tuple(axis for axis in range(len(shape)) if axis not in chosen)
        outer = t.var("x", 0, math.prod(shape[axis] for axis in chosen))
        inner = t.var("r", 1, math.prod(shape[axis] for axis in others))
        index = dict(_unravelled(t, outer, shape, chosen) + _unravelled(t, inner, shape, others))
        at = tuple(index[axis] for axis in range(len(shape)))
        return Store(parameter.name, t.ravel(at, shape), x.at(value, at), outer, inner)

    def _before_views(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Return the value stored under an output's offsets: that before trailing operators that only reshape it."""
        node = value.producer()
        while node is not None and node.op_type in TRAILING and node.domain in ("", "ai.onnx"):
            source = node.inputs[0]
            if source is None or source.producer() is None or source in self._leaves:
                break
            value, node = source, source.producer()
        return value


def _unravelled(t: Terms, var: Var, shape: Sequence[int], axes: Sequence[int]) -> list[tuple[int, Term]]:
    return list(zip(axes, t.unravel(t.of(var), [shape[axis] for axis in axes]), strict=True))


def walk(terms: Sequence[Term]) -> list[Term]:
    """Return every term that the terms are made of, each once, operands first."""
    seen: dict[Term, None] = {}
    stack = [(term, False) for term in reversed(terms)]
    while stack:
        term, done = stack.pop()
        if done:
            seen.setdefault(term)
        elif term not in seen:
            stack.append((term, True))
            stack.extend((each, False) for each in reversed(term.operands))
    return list(seen)


def _loaded(terms: Sequence[Term]) -> set[str]:
    return {str(term.data) for term in walk(terms) if term.op == "load"}


def _check_waste(stores: Sequence[Store], rows: Mapping[Term, int]) -> None:
    """Reject a nest that would reduce the same rows repeatedly, once for each element that uses their result.

    Args:
        stores: Stores of the nest.
        rows: Number of distinct rows of each reduction.
    """
    for store in stores:
        for term in walk([store.value]):
            if term.op != "reduce" or store.outer.extent * _extent(term) <= _SMALL:
                continue
            again = store.outer.extent // max(1, rows[term])
            if again > _WASTE:
                raise Refused(f"it would reduce each row of {term.origin} {again} times over")


def _extent(reduction: Term) -> int:
    assert isinstance(reduction.data, tuple)
    extent: int = reduction.data[1].extent
    return extent
