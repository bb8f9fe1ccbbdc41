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
    """What a value, and the operators that produce it, must look like. A pattern used twice matches one value."""

    __slots__ = ()

    def __or__(self, other: Pattern) -> Alternative:
        """Either; the left one is preferred."""
        return Alternative((self, other))  # not flattened: the left one may be used elsewhere too

    def __and__(self, other: Pattern) -> Both:
        """Both, of the same value; what either takes inside is inside."""
        return Both((self, other))

    def __invert__(self) -> Not:
        """Anything else: a value at which this does not match. What it looks at stays outside."""
        return Not(self)

    def __rshift__(self, operator: Pattern) -> Pattern:
        """`operator`, whose first operand is this, and nothing else reads this: `is_op("Conv") >> is_op("Relu")`.

        Args:
            operator: An operator without its first operand: `is_op("Add")(bias)`, or not called, with any further
                operands. Or several of which one is meant, or one that is named or has constraints.

        Raises:
            TypeError: If it is no operator.
        """
        return reading(operator, self.used_once())

    def __bool__(self) -> NoReturn:
        """Patterns have no truth.

        Raises:
            TypeError: Always; `and`, `or` and `not` cannot be told what they mean.
        """
        raise TypeError("a pattern is neither true nor false: combine patterns with &, | and ~")

    def optional(self, wrap: Callable[[Pattern], Pattern]) -> Alternative:
        """This, with `wrap` around it if that matches: `conv.optional(is_op("Relu"))`."""
        return Alternative((wrap(self), self))

    def named(self, name: str) -> Capture:
        """This, its value remembered under a name for `check` and `attrs_getter`; nothing, if it is absent."""
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

    def used_by(self, user: Pattern) -> Used:
        """This, if a node that reads it has an output that matches `user`, whose operators are inside then too."""
        return Used(self, user, only=False)

    def only_used_by(self, user: Pattern) -> Used:
        """This, if one node alone reads it, it is no output of the graph, and an output of that node matches `user`."""
        return Used(self, user, only=True)

    def used_once(self) -> Used:
        """This, if one node alone reads it and it is no output of the graph."""
        return Used(self, None, only=True)


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Wildcard(Pattern):
    """Any value that is there; its producer stays outside of the match."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Absent(Pattern):
    """No value: an optional input that is not given."""


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
class Input(Pattern):
    """A value that is given to the graph: neither a constant nor any node's output.

    Attributes:
        name: Its name; None for any.
    """

    name: str | None = None


Repeated: TypeAlias = Pattern | Callable[[int], Pattern]
"""What is matched several times: a pattern, of which each place gets a copy, so that nothing in it is shared between
places or with the rest; or a function from the number of the place to the pattern there, in which what the function
does not make itself is shared as anywhere else."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Variadic:
    """All operands from some position on.

    Attributes:
        each: What each must look like; None for anything, absent operands included.
        at_least: How many there are at least.
        at_most: How many there are at most; None for any number.
    """

    each: Repeated | None = None
    at_least: int = 0
    at_most: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition on a node.

    Attributes:
        holds: Whether a node satisfies it.
        meaning: What it says, in words.
    """

    holds: Callable[[NodeContext], bool]
    meaning: str


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Operator(Pattern):
    """An output of an operator, which is inside the match.

    Call it with patterns of its operands. Not called, it takes any operands. As the last operand, `variadic(...)` takes
    all further ones, and `...` does so whatever they are.

    Attributes:
        op_types: Accepted types; empty for any.
        domain: Their domain, `""` for ai.onnx; None for any.
        operands: Patterns of the operands; None for any operands at all.
        rest: What further operands must look like; None if there may be none.
        attributes: Wanted attribute values, or predicates on them, by name.
        output: Which output of the operator is meant; None for any.
        versions: First and last opset version of the domain at which it is meant; None for no limit.
        any_order: Whether the operands may be given in any order; None for what ONNX says of the operator.
        conditions: What the node must satisfy besides.
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
        """The operator on these operands.

        Raises:
            TypeError: If there is something else among them, or `...` or `variadic(...)` is not the last.
        """
        last = operands[-1] if operands else None
        rest = Variadic() if last is ... else last if isinstance(last, Variadic) else None
        patterns = tuple(operand for operand in operands if isinstance(operand, Pattern))
        if len(patterns) + (rest is not None) != len(operands):
            raise TypeError(f"operands of {self.words} are patterns, and ... or variadic(...) only comes last")
        return dataclasses.replace(self, operands=patterns, rest=rest)

    def has_attr(self, **attributes: Any) -> Operator:
        """The operator with these attribute values.

        One that is not set has ONNX's default. A callable is asked about the value, None if there is neither. Floats
        are compared as ONNX keeps them, in float32.
        """
        return dataclasses.replace(self, attributes={**self.attributes, **attributes})

    def has_version(self, first: int | None = None, last: int | None = None) -> Operator:
        """The operator, where the model imports its domain at a version from `first` to `last`, both included."""
        return dataclasses.replace(self, versions=(first, last))

    def has_kind(self, *kinds: OpPatternKind) -> Operator:
        """The operator, if it is of one of these kinds in the graph it is in."""
        return self.which(lambda node: node.kind in kinds, f"of kind {' or '.join(kind.name for kind in kinds)}")

    def which(self, holds: Callable[[NodeContext], bool], meaning: str) -> Operator:
        """The operator, if its node satisfies `holds`; `meaning` says what that is, after "is not"."""
        return dataclasses.replace(self, conditions=(*self.conditions, NodeCondition(holds, meaning)))

    def in_order(self) -> Operator:
        """The operator with its operands in the given order, also where it is commutative."""
        return dataclasses.replace(self, any_order=False)

    def in_any_order(self) -> Operator:
        """The operator with its operands in any order: for commutative operators of other domains than ONNX's."""
        return dataclasses.replace(self, any_order=True)

    def at(self, output: int) -> Operator:
        """One output of the operator."""
        return dataclasses.replace(self, output=output)

    @property
    def words(self) -> str:
        """The accepted types, for refusals."""
        return " or ".join(self.op_types) or "an operator"


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Alternative(Pattern):
    """One of several patterns, tried in order."""

    choices: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Both(Pattern):
    """All of several patterns, of one value."""

    parts: tuple[Pattern, ...]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Not(Pattern):
    """Whatever another pattern does not match, once the values of all that they share are settled."""

    inner: Pattern


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


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Used(Pattern):
    """A pattern whose value is read in a certain way.

    Attributes:
        inner: The pattern.
        by: What an output of a node that reads it must look like; None for anything, which then stays outside.
        only: Whether that node must be the only one, and the value no output of the graph.
    """

    inner: Pattern
    by: Pattern | None
    only: bool


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Dominated(Pattern):
    """A value by which all that is made of an earlier one passes.

    Attributes:
        parent: The earlier value.
        path: What an output of each node between must look like; these nodes are inside the match.
        child: The value itself.
    """

    parent: Pattern
    path: Repeated
    child: Pattern


def reading(operator: Pattern, operand: Pattern) -> Pattern:
    """An operator with one more operand, the first; see `Pattern.__rshift__`.

    Raises:
        TypeError: If it is no operator.
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
    """The patterns a pattern is directly made of, without those of what is repeated, which is matched as copies."""
    for field in dataclasses.fields(pattern):  # type: ignore[arg-type]
        if field.name == "path":
            continue
        value = getattr(pattern, field.name)
        if isinstance(value, Pattern):
            yield value
        elif isinstance(value, tuple):
            yield from (each for each in value if isinstance(each, Pattern))


def repeats(pattern: Pattern) -> Repeated | None:
    """What a pattern repeats, if it does."""
    match pattern:
        case Operator(rest=Variadic(each=each)):
            return each
        case Dominated(path=path):
            return path
        case _:
            return None


def reachable(root: Pattern) -> set[Pattern]:
    """The patterns that a pattern is made of, itself included."""
    seen: set[Pattern] = set()
    pending = [root]
    while pending:
        pattern = pending.pop()
        if pattern not in seen:
            seen.add(pattern)
            pending.extend(parts(pattern))
    return seen


def copied(pattern: Pattern, made: dict[Pattern, Pattern] | None = None) -> Pattern:
    """A pattern of the same form that shares no part with the first one."""
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
