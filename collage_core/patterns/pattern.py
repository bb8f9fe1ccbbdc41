"""The dataflow pattern language: what a group of operators looks like.

Patterns are values and read like the expression they match:

    x, w, b = wildcard(), is_constant(), is_constant()
    dense = is_op("Add")(is_op("MatMul")(x, w), b)
    dense_act = dense.optional(is_op("Relu")) | is_op("Gemm")(x, w, ...)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import EllipsisType
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.tensor_spec import TensorSpec

COMMUTATIVE = frozenset(
    {"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)
"""Operators whose two operands may be given in either order."""


class Pattern:
    """What a value, and the operators that produce it, must look like. A pattern used twice matches one value."""

    __slots__ = ()

    def __or__(self, other: Pattern) -> Alternative:
        """Either; the left one is preferred."""
        mine = self.choices if isinstance(self, Alternative) else (self,)
        return Alternative((*mine, other))

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Alternative:
        """This, with `wrap` around it if that matches: `conv.optional(is_op("Relu"))`."""
        return Alternative((wrap(self), self))

    def named(self, name: str) -> Capture:
        """This, remembered under a name for `check` and `attrs_getter`."""
        return Capture(self, name)

    def where(self, holds: Callable[[TensorSpec], bool], meaning: str) -> Constrained:
        """This, if what is known of its value satisfies `holds`; `meaning` says what that is, for refusals."""
        return Constrained(self, holds, meaning)

    def has_dtype(self, *names: str) -> Constrained:
        """This, with one of these ONNX element types: `"FLOAT"`, `"FLOAT16"`."""
        return self.where(
            lambda spec: spec.dtype is not None and spec.dtype.name in names, f"dtype {' or '.join(names)}"
        )

    def has_rank(self, rank: int) -> Constrained:
        """This, with so many axes."""
        return self.where(lambda spec: spec.shape is not None and len(spec.shape) == rank, f"rank {rank}")

    def has_shape(self, shape: Sequence[int | None]) -> Constrained:
        """This, with this shape; None stands for any extent."""
        wanted = tuple(shape)

        def holds(spec: TensorSpec) -> bool:
            return (
                spec.shape is not None
                and len(spec.shape) == len(wanted)
                and all(want in (None, have) for want, have in zip(wanted, spec.shape, strict=True))
            )

        return self.where(holds, f"shape {wanted}")


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Any value; its producer stays outside of the match."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constant(Pattern):
    """A constant.

    Attributes:
        holds: What its value must satisfy; None for any.
        meaning: That, in words.
    """

    holds: Callable[[np.ndarray[Any, Any]], bool] | None = None
    meaning: str = "a constant"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Absent(Pattern):
    """No value: an optional input that is not given."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator(Pattern):
    """An output of an operator, which is inside the match.

    Call it with patterns of its operands. Not called, it takes any operands; `...` as the last operand takes any
    further ones.

    Attributes:
        op_types: Accepted types.
        domain: Their domain.
        operands: Patterns of the operands; None for any.
        open_ended: Whether further operands are accepted.
        attributes: Wanted attribute values, or predicates on them, by name.
        output: Which output of the operator is meant; None for any.
    """

    op_types: tuple[str, ...]
    domain: str = ""
    operands: tuple[Pattern, ...] | None = None
    open_ended: bool = False
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    output: int | None = None

    def __call__(self, *operands: Pattern | EllipsisType) -> Operator:
        """The operator on these operands.

        Raises:
            TypeError: If `...` is not the last operand.
        """
        patterns = tuple(operand for operand in operands if isinstance(operand, Pattern))
        open_ended = bool(operands) and operands[-1] is ...
        if len(patterns) + open_ended != len(operands):
            raise TypeError(f"operands of {self.op_types} are patterns, and ... only comes last")
        return dataclasses.replace(self, operands=patterns, open_ended=open_ended)

    def has_attr(self, **attributes: Any) -> Operator:
        """The operator with these attribute values; a callable is asked about the value, None if it is not set."""
        return dataclasses.replace(self, attributes={**self.attributes, **attributes})

    def at(self, output: int) -> Operator:
        """One output of the operator."""
        return dataclasses.replace(self, output=output)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Alternative(Pattern):
    """One of several patterns, tried in order."""

    choices: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Capture(Pattern):
    """A pattern whose value is remembered under a name."""

    inner: Pattern
    name: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constrained(Pattern):
    """A pattern whose value must also satisfy a condition."""

    inner: Pattern
    holds: Callable[[TensorSpec], bool]
    meaning: str


def wildcard() -> Wildcard:
    """Any value."""
    return Wildcard()


def is_constant(holds: Callable[[np.ndarray[Any, Any]], bool] | None = None, meaning: str = "a constant") -> Constant:
    """A constant, perhaps with a condition on its value, which `meaning` puts into words."""
    return Constant(holds, meaning)


def is_scalar(value: float, tolerance: float = 1e-6) -> Constant:
    """A constant of one element with this value."""
    return Constant(
        lambda array: array.size == 1 and bool(abs(float(array.reshape(())) - value) <= tolerance),
        f"the constant {value}",
    )


def is_absent() -> Absent:
    """An optional input that is not given."""
    return Absent()


def is_op(*names: str) -> Operator:
    """An operator of one of these types: `is_op("Conv")`, `is_op("com.microsoft::FusedConv")`.

    Raises:
        ValueError: If no name is given, or names have different domains.
    """
    split = [name.rpartition("::") for name in names]
    domains = {domain for domain, _, _ in split}
    if len(domains) != 1:
        raise ValueError(f"is_op takes operators of one domain, not {names}")
    return Operator(tuple(op_type for _, _, op_type in split), domains.pop())


def same_domain(node: onnx_ir.Node, domain: str) -> bool:
    """Whether a node's domain is `domain`, `""` and `ai.onnx` being the same."""
    return ("" if node.domain == "ai.onnx" else node.domain) == domain
