"""Functions that construct patterns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from collage_core.patterns.pattern import (
    Absent,
    Constant,
    Dominated,
    Input,
    Operator,
    Pattern,
    Repeated,
    Variadic,
    Wildcard,
    reading,
)


def wildcard() -> Wildcard:
    """Match any value; its producer stays outside the match."""
    return Wildcard()


def is_input(name: str | None = None) -> Input:
    """Match a graph input, optionally one with this name; constants do not count as inputs."""
    return Input(name)


def is_constant(holds: Callable[[np.ndarray[Any, Any]], bool] | None = None, meaning: str = "a constant") -> Constant:
    """Match a constant, optionally with a condition on its value, which `meaning` describes in words."""
    return Constant(holds, meaning)


def is_scalar(value: float, tolerance: float = 1e-6) -> Constant:
    """Match a constant of one element with this value."""
    return Constant(
        lambda array: array.size == 1 and bool(abs(float(array.reshape(())) - value) <= tolerance),
        f"the constant {value}",
    )


def is_absent() -> Absent:
    """Match an omitted optional input."""
    return Absent()


def is_op(*names: str) -> Operator:
    """Match an operator of one of these types: `is_op("Conv")`, `is_op("com.microsoft::FusedConv")`.

    Raises:
        ValueError: If no name is given, or names have different domains.
    """
    split = [name.rpartition("::") for name in names]
    domains = {"" if domain == "ai.onnx" else domain for domain, _, _ in split}
    if len(domains) != 1:
        raise ValueError(f"is_op takes operators of one domain, not {names}")
    return Operator(tuple(op_type for _, _, op_type in split), domains.pop())


def any_op(domain: str | None = None) -> Operator:
    """Match an operator of any type, optionally only of one domain (`""` for ai.onnx).

    Examples:
        >>> from collage_core.ir.operators.op_kind import OpPatternKind
        >>> elementwise = any_op().has_kind(OpPatternKind.ELEMENTWISE, OpPatternKind.BROADCAST)
    """
    return Operator((), "" if domain == "ai.onnx" else domain)


def variadic(each: Repeated, *, at_least: int = 0, at_most: int | None = None) -> Variadic:
    """Match all further operands of an operator: `is_op("Concat")(variadic(is_op("Relu")))`.

    Args:
        each: Either a pattern, of which each operand gets a copy; or a function from the operand's number,
            counted from 0, to its pattern; in `variadic(lambda _: is_op("Conv")(x, ...))` all share one `x`.
        at_least: Minimum number of operands.
        at_most: Maximum number of operands; None for no limit.

    Raises:
        TypeError: If `each` is neither a pattern nor a function.
    """
    if not isinstance(each, Pattern) and not callable(each):
        raise TypeError(f"variadic takes a pattern or a function, not {type(each).__name__}")
    return Variadic(each, at_least, at_most)


def dominates(parent: Pattern, path: Repeated, child: Pattern) -> Dominated:
    """Match a value `child` that post-dominates an earlier value `parent`.

    Equivalent to TVM's pattern of that name. `child` matches the value itself. There is an earlier value that
    `parent` matches, such that every path from it to an output of the graph goes through the node of `child`;
    and every node on a path between the two has an output that `path` matches. The nodes between are inside the
    match. The nearest such parent is taken.

    Args:
        parent: The earlier value.
        path: A pattern, of which each node between gets a copy; or a function from the node's number, counted
            from 0 in the graph's order, to its pattern.
        child: The later value.

    Raises:
        TypeError: If `path` is neither a pattern nor a function.
    """
    if not isinstance(path, Pattern) and not callable(path):
        raise TypeError(f"a path is a pattern or a function, not {type(path).__name__}")
    return Dominated(parent, path, child)


def chain(first: Pattern, *operators: Pattern, only: bool = True) -> Pattern:
    """Match a chain of operators, each reading the previous one as its first operand.

    Args:
        first: Start of the chain.
        *operators: Operators without their first operand, as `>>` takes them.
        only: Whether each intermediate value has no other reader: `chain(a, b, c)` is `a >> b >> c`.

    Raises:
        TypeError: If one of them is not an operator.
    """

    def joined(before: Pattern, operator: Pattern) -> Pattern:
        return before >> operator if only else reading(operator, before)

    return functools.reduce(joined, operators, first)
