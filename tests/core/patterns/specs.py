"""Patterns as the tests see them: plain data, from which both the language's patterns and the oracle's answers come."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

from collage_core.patterns import (
    Pattern,
    any_op,
    chain,
    dominates,
    is_absent,
    is_constant,
    is_input,
    is_op,
    variadic,
    wildcard,
)
from collage_core.patterns.pattern import Operator, Variadic

PLACES = 7
"""As many operands, and nodes on a path, as the random graphs have at most."""


@dataclasses.dataclass(eq=False)
class Spec:
    """A pattern; told apart by identity, as patterns are."""


@dataclasses.dataclass(eq=False)
class Any(Spec):
    """A wildcard."""


@dataclasses.dataclass(eq=False)
class Absent(Spec):
    """An operand that is not given."""


@dataclasses.dataclass(eq=False)
class Const(Spec):
    """A constant, perhaps of one element with a value."""

    value: float | None = None


@dataclasses.dataclass(eq=False)
class Given(Spec):
    """An input of the graph, perhaps with a name."""

    name: str | None = None


@dataclasses.dataclass(eq=False)
class Each:
    """What is repeated: copies of a body that share those of its parts that are in `shared`."""

    body: Spec
    shared: frozenset[Spec] = frozenset()
    places: list[Spec] = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.places = [copy(self.body, self.shared, {}) for _ in range(PLACES)]


@dataclasses.dataclass(eq=False)
class Rest:
    """What further operands are; without `each`, anything."""

    each: Each | None = None
    at_least: int = 0
    at_most: int | None = None


@dataclasses.dataclass(eq=False)
class Op(Spec):
    """An operator; no types is any."""

    types: tuple[str, ...]
    operands: tuple[Spec, ...] | None = None
    rest: Rest | None = None
    axis: int | None = None
    output: int | None = None
    any_order: bool | None = None
    versions: tuple[int | None, int | None] = (None, None)


@dataclasses.dataclass(eq=False)
class Or(Spec):
    """One of two."""

    left: Spec
    right: Spec


@dataclasses.dataclass(eq=False)
class Optional(Spec):
    """An operator around something, or that alone."""

    inner: Spec
    types: tuple[str, ...]
    wrapped: Spec = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.wrapped = Op(self.types, (self.inner,))


@dataclasses.dataclass(eq=False)
class And(Spec):
    """Both of two."""

    left: Spec
    right: Spec


@dataclasses.dataclass(eq=False)
class Non(Spec):
    """What another does not match."""

    inner: Spec


@dataclasses.dataclass(eq=False)
class Named(Spec):
    """A captured value."""

    inner: Spec
    name: str


@dataclasses.dataclass(eq=False)
class Typed(Spec):
    """A value with a dtype or a rank or a shape."""

    inner: Spec
    dtype: str | None = None
    rank: int | None = None
    shape: tuple[int | None, ...] | None = None


@dataclasses.dataclass(eq=False)
class UsedBy(Spec):
    """A value that is read by what looks like `by`; without `by`, by one node."""

    inner: Spec
    by: Spec | None
    only: bool


@dataclasses.dataclass(eq=False)
class Chain(Spec):
    """An operator that reads something first, and says nothing of the rest or names it."""

    first: Spec
    operator: Op
    only: bool
    meaning: Op = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        first = UsedBy(self.first, None, only=True) if self.only else self.first
        further, rest = self.operator.operands, self.operator.rest
        if further is None:
            further, rest = (), Rest()
        self.meaning = dataclasses.replace(self.operator, operands=(first, *further), rest=rest)


@dataclasses.dataclass(eq=False)
class Dominates(Spec):
    """A value by which all made of an earlier one passes."""

    parent: Spec
    path: Each
    child: Spec


def children(spec: Spec) -> Iterator[Spec]:
    """The specs one is directly made of, copies of what is repeated included."""
    match spec:
        case Chain():
            yield spec.meaning
        case Optional():
            yield from (spec.wrapped, spec.inner)
        case _:
            for field in dataclasses.fields(spec):
                value = getattr(spec, field.name)
                if isinstance(value, Spec):
                    yield value
                elif isinstance(value, Each):
                    yield from value.places
                elif isinstance(value, Rest) and value.each is not None:
                    yield from value.each.places
                elif isinstance(value, tuple):
                    yield from (each for each in value if isinstance(each, Spec))


def copy(spec: Spec, shared: frozenset[Spec], made: dict[Spec, Spec]) -> Spec:
    """A spec of the same form; parts in `shared` stay what they are."""
    if spec in shared:
        return spec
    if spec not in made:
        changes: dict[str, object] = {}
        for field in dataclasses.fields(spec):
            value = getattr(spec, field.name)
            if not field.init:
                continue
            if isinstance(value, Spec):
                changes[field.name] = copy(value, shared, made)
            elif isinstance(value, tuple):
                changes[field.name] = tuple(copy(e, shared, made) if isinstance(e, Spec) else e for e in value)
            elif isinstance(value, Each):
                changes[field.name] = Each(value.body, value.shared)
            elif isinstance(value, Rest) and value.each is not None:
                changes[field.name] = dataclasses.replace(value, each=Each(value.each.body, value.each.shared))
        made[spec] = dataclasses.replace(spec, **changes)
    return made[spec]


def built(spec: Spec, made: dict[Spec, Pattern]) -> Pattern:
    """The pattern in the language, each spec becoming one pattern."""
    if spec not in made:
        made[spec] = _built(spec, functools.partial(built, made=made))
    return made[spec]


def _built(spec: Spec, part: Callable[[Spec], Pattern]) -> Pattern:
    match spec:
        case Any():
            return wildcard()
        case Absent():
            return is_absent()
        case Const(None):
            return is_constant()
        case Const(value):
            return is_constant(lambda array: array.size == 1 and array.item() == value, f"{value}")
        case Given(name):
            return is_input(name)
        case Op():
            operator = _operator(spec)
            if spec.operands is None:
                return operator
            return operator(*map(part, spec.operands), *_rest(spec.rest, part))
        case Or(left, right):
            return part(left) | part(right)
        case Optional(inner, types):
            return part(inner).optional(is_op(*types))
        case And(left, right):
            return part(left) & part(right)
        case Non(inner):
            return ~part(inner)
        case Named(inner, name):
            return part(inner).named(name)
        case Typed(inner, dtype, rank, shape):
            typed = part(inner)
            typed = typed if dtype is None else typed.has_dtype(dtype)
            typed = typed if rank is None else typed.has_rank(rank)
            return typed if shape is None else typed.has_shape(shape)
        case UsedBy(inner, by, only):
            if by is None:
                return part(inner).used_once()
            return part(inner).only_used_by(part(by)) if only else part(inner).used_by(part(by))
        case Chain(first, operator, only):
            further = _operator(operator)
            if operator.operands is not None:
                further = further(*map(part, operator.operands), *_rest(operator.rest, part))
            return part(first) >> further if only else chain(part(first), further, only=False)
        case Dominates(parent, path, child):
            return dominates(part(parent), _repeated(path, part), part(child))
    raise TypeError(spec)


def _operator(spec: Op) -> Operator:
    operator = is_op(*spec.types) if spec.types else any_op()
    if spec.axis is not None:
        operator = operator.has_attr(axis=spec.axis)
    if spec.output is not None:
        operator = operator.at(spec.output)
    if spec.versions != (None, None):
        operator = operator.has_version(*spec.versions)
    if spec.any_order is not None:
        operator = operator.in_any_order() if spec.any_order else operator.in_order()
    return operator


def _rest(rest: Rest | None, part: Callable[[Spec], Pattern]) -> tuple[Variadic | type(...), ...]:  # type: ignore[valid-type]
    if rest is None:
        return ()
    if rest.each is None:
        return (...,)
    return (variadic(_repeated(rest.each, part), at_least=rest.at_least, at_most=rest.at_most),)


def _repeated(each: Each, part: Callable[[Spec], Pattern]) -> Pattern | Callable[[int], Pattern]:
    if each.shared:
        return lambda place: part(each.places[place])
    return built(each.body, {})
