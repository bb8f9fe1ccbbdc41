"""The vertices of the dataflow pattern language, and how they are put together.

A pattern says what a value, and the operators that produce it, must look like. Patterns are values: nothing changes
one, and methods give new ones. The one thing that is told apart by identity is a pattern used at several places: it
matches one value. `docs/plugin-authors/patterns.md` is the language on one page.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from collage_core.ir.operators.op_kind import OpPatternKind
from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns.context import NodeContext


class Pattern:
    """Description of a value and the operators that produce it. A pattern used twice matches one value."""

    __slots__ = ()

    def __or__(self, other: Pattern) -> Alternative:
        """Match either pattern, preferring the left one."""
        return Alternative((self, other))  # not flattened: the left one may be used elsewhere too

    def __and__(self, other: Pattern) -> Both:
        """Match both patterns at the same value; nodes inside either match are inside."""
        return Both((self, other))

    def __invert__(self) -> Not:
        """Match any value at which this pattern does not match; the nodes it inspects stay outside."""
        return Not(self)

    def __rshift__(self, operator: Pattern) -> Pattern:
        """Match `operator` reading this as first operand, as the only reader: `is_op("Conv") >> is_op("Relu")`.

        Args:
            operator: An operator without its first operand: `is_op("Add")(bias)`; if it is not called, it may have
                any further operands. Also an alternative of operators, or one that is named or has constraints.

        Raises:
            TypeError: If it is not an operator.
        """
        return reading(operator, self.used_once())

    def __bool__(self) -> NoReturn:
        """Refuse conversion to bool, because patterns have no truth value.

        Raises:
            TypeError: Always, since `and`, `or` and `not` cannot be overloaded.
        """
        raise TypeError("a pattern is neither true nor false: combine patterns with &, | and ~")

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Alternative:
        """Match this pattern with `wrap` around it if that matches, else alone: `conv.optional(is_op("Relu"))`."""
        return Alternative((wrap(self), self))

    def named(self, name: str) -> Capture:
        """Capture the value of this pattern under a name for `check` and `attrs_getter`; nothing if it is absent."""
        return Capture(self, name)

    def where(self, holds: Callable[[TensorSpec], bool], meaning: str) -> Constrained:
        """Match only if the value's spec satisfies `holds`; `meaning` describes the condition in refusals."""
        return Constrained(self, holds, meaning)

    def has_dtype(self, *names: str) -> Constrained:
        """Require one of these ONNX element types: `"FLOAT"`, `"FLOAT16"`."""
        return self.where(
            lambda spec: spec.dtype is not None and spec.dtype.name in names, f"dtype {' or '.join(names)}"
        )

    def has_rank(self, rank: int) -> Constrained:
        """Require this number of axes."""
        return self.where(lambda spec: spec.shape is not None and len(spec.shape) == rank, f"rank {rank}")

    def has_shape(self, shape: Sequence[int | None]) -> Constrained:
        """Require this shape; None stands for any extent."""
        wanted = tuple(shape)

        def holds(spec: TensorSpec) -> bool:
            return (
                spec.shape is not None
                and len(spec.shape) == len(wanted)
                and all(want in (None, have) for want, have in zip(wanted, spec.shape, strict=True))
            )

        return self.where(holds, f"shape {wanted}")

    def used_by(self, user: Pattern) -> Used:
        """Require a reader with an output that matches `user`, whose operators are then inside the match."""
        return Used(self, user, only=False)

    def only_used_by(self, user: Pattern) -> Used:
        """Require a single reader with an output that matches `user`; the value must not be a graph output."""
        return Used(self, user, only=True)

    def used_once(self) -> Used:
        """Require that exactly one node reads the value and that it is not a graph output."""
        return Used(self, None, only=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Any present value; its producer stays outside of the match."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Absent(Pattern):
    """No value: an optional input that is not given."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constant(Pattern):
    """A constant.

    Attributes:
        holds: Condition on its value; None for any.
        meaning: The condition in words.
    """

    holds: Callable[[np.ndarray[Any, Any]], bool] | None = None
    meaning: str = "a constant"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Input(Pattern):
    """A graph input: neither a constant nor any node's output.

    Attributes:
        name: Its name; None for any.
    """

    name: str | None = None


Repeated: TypeAlias = Pattern | Callable[[int], Pattern]
"""A pattern that is copied for each place, or a function from the number of the place to its pattern.

Copies share nothing with each other or with the rest. Patterns returned by a function share what the function does
not create itself, as anywhere else.
"""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variadic:
    """All operands from some position on.

    Attributes:
        each: Pattern of each operand; None for any, absent operands included.
        at_least: Minimum number of operands.
        at_most: Maximum number of operands; None for no limit.
    """

    each: Repeated | None = None
    at_least: int = 0
    at_most: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition on a node.

    Attributes:
        holds: Returns whether a node satisfies the condition.
        meaning: The condition in words.
    """

    holds: Callable[[NodeContext], bool]
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator(Pattern):
    """An output of an operator, which is inside the match.

    Call it with patterns of its operands; without a call it accepts any operands. As the last operand,
    `variadic(...)` matches all further operands, and `...` accepts any further operands.

    Attributes:
        op_types: Accepted types; empty for any.
        domain: Domain of the operator, `""` for ai.onnx; None for any.
        operands: Patterns of the operands; None for any operands at all.
        rest: Pattern of further operands; None if there may be none.
        attributes: Required attribute values, or predicates on them, by name.
        output: Index of the matched output; None for any.
        versions: First and last accepted opset version of the domain; None for no limit.
        any_order: Whether the operands may be given in any order; None to follow ONNX's definition of the operator.
        conditions: Further conditions on the node.
    """

    op_types: tuple[str, ...]
    domain: str | None = ""
    operands: tuple[Pattern, ...] | None = None
    rest: Variadic | None = None
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    output: int | None = None
    versions: tuple[int | None, int | None] = (None, None)
    any_order: bool | None = None
    conditions: tuple[NodeCondition, ...] = ()

    def __call__(self, *operands: Pattern | Variadic | EllipsisType) -> Operator:
        """Apply the operator to these operands.

        Raises:
            TypeError: If an operand is of another type, or `...` or `variadic(...)` is not the last.
        """
        last = operands[-1] if operands else None
        rest = Variadic() if last is ... else last if isinstance(last, Variadic) else None
        patterns = tuple(operand for operand in operands if isinstance(operand, Pattern))
        if len(patterns) + (rest is not None) != len(operands):
            raise TypeError(f"operands of {self.words} are patterns, and ... or variadic(...) only comes last")
        return dataclasses.replace(self, operands=patterns, rest=rest)

    def has_attr(self, **attributes: Any) -> Operator:
        """Require these attribute values.

        An attribute that is not set has ONNX's default. A callable receives the value, None if there is neither a
        value nor a default, and decides. Floats are compared in float32, as ONNX stores them.
        """
        return dataclasses.replace(self, attributes={**self.attributes, **attributes})

    def has_version(self, first: int | None = None, last: int | None = None) -> Operator:
        """Require that the model imports the operator's domain at a version from `first` to `last`, inclusive."""
        return dataclasses.replace(self, versions=(first, last))

    def has_kind(self, *kinds: OpPatternKind) -> Operator:
        """Require that the operator is of one of these kinds in its graph."""
        return self.which(lambda node: node.kind in kinds, f"of kind {' or '.join(kind.name for kind in kinds)}")

    def which(self, holds: Callable[[NodeContext], bool], meaning: str) -> Operator:
        """Require that the operator's node satisfies `holds`; `meaning` follows "is not" in messages."""
        return dataclasses.replace(self, conditions=(*self.conditions, NodeCondition(holds, meaning)))

    def in_order(self) -> Operator:
        """Match the operands in the given order, even if the operator is commutative."""
        return dataclasses.replace(self, any_order=False)

    def in_any_order(self) -> Operator:
        """Match the operands in any order: for commutative operators of domains other than ONNX's."""
        return dataclasses.replace(self, any_order=True)

    def at(self, output: int) -> Operator:
        """Select one output of the operator."""
        return dataclasses.replace(self, output=output)

    @property
    def words(self) -> str:
        """The accepted types, for messages of refusals."""
        return " or ".join(self.op_types) or "an operator"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Alternative(Pattern):
    """One of several patterns, tried in order."""

    choices: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Both(Pattern):
    """A value that matches all of several patterns."""

    parts: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Not(Pattern):
    """A value that another pattern does not match, tested once all patterns shared with it are bound."""

    inner: Pattern


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Capture(Pattern):
    """A pattern whose value is captured under a name."""

    inner: Pattern
    name: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Constrained(Pattern):
    """A pattern whose value must also satisfy a condition."""

    inner: Pattern
    holds: Callable[[TensorSpec], bool]
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Used(Pattern):
    """A pattern whose value has a certain reader.

    Attributes:
        inner: The pattern.
        by: Pattern of an output of a reading node; None for any reader, which then stays outside.
        only: Whether that node must be the only reader, and the value no graph output.
    """

    inner: Pattern
    by: Pattern | None
    only: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Dominated(Pattern):
    """A value that post-dominates an earlier one: everything computed from the earlier value passes through it.

    Attributes:
        parent: The earlier value.
        path: Pattern of an output of each node between; these nodes are inside the match.
        child: The value itself.
    """

    parent: Pattern
    path: Repeated
    child: Pattern


def reading(operator: Pattern, operand: Pattern) -> Pattern:
    """Prepend an operand to an operator; see `Pattern.__rshift__`.

    Raises:
        TypeError: If it is not an operator.
    """
    match operator:
        case Operator(operands=None):
            return operator(operand, ...)
        case Operator(operands=tuple(operands)):
            return dataclasses.replace(operator, operands=(operand, *operands))
        case Capture(inner) | Constrained(inner) | Used(inner):
            return dataclasses.replace(operator, inner=reading(inner, operand))
        case Alternative(choices):
            return Alternative(tuple(reading(choice, operand) for choice in choices))
        case _:
            raise TypeError(f"only an operator reads an operand, not {operator!r}")


def parts(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the direct sub-patterns, except those of a repeated pattern, which is matched as copies."""
    for field in dataclasses.fields(pattern):  # type: ignore[arg-type]
        if field.name == "path":
            continue
        value = getattr(pattern, field.name)
        if isinstance(value, Pattern):
            yield value
        elif isinstance(value, tuple):
            yield from (each for each in value if isinstance(each, Pattern))


def repeats(pattern: Pattern) -> Repeated | None:
    """Return the repeated pattern or function of a pattern, if it has one."""
    match pattern:
        case Operator(rest=Variadic(each=each)):
            return each
        case Dominated(path=path):
            return path
        case _:
            return None


def reachable(root: Pattern) -> set[Pattern]:
    """Return all sub-patterns of a pattern, itself included."""
    seen: set[Pattern] = set()
    pending = [root]
    while pending:
        pattern = pending.pop()
        if pattern not in seen:
            seen.add(pattern)
            pending.extend(parts(pattern))
    return seen


def copied(pattern: Pattern, made: dict[Pattern, Pattern] | None = None) -> Pattern:
    """Copy a pattern such that the copy shares no part with the original."""
    made = {} if made is None else made
    if pattern not in made:
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(pattern):  # type: ignore[arg-type]
            value = getattr(pattern, field.name)
            if isinstance(value, Pattern) and field.name != "path":
                changes[field.name] = copied(value, made)
            elif isinstance(value, tuple):
                changes[field.name] = tuple(copied(e, made) if isinstance(e, Pattern) else e for e in value)
        made[pattern] = dataclasses.replace(pattern, **changes)  # type: ignore[type-var]
    return made[pattern]
