"""Supported operators of one target: patterns in priority order, and predicates of single operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from types import MappingProxyType

from collage_core.contract.support import Supported, Unsupported
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns.context import NodeContext
from collage_core.patterns.matcher import Matcher
from collage_core.patterns.matches import Match, Mismatch
from collage_core.patterns.pattern import Pattern, reachable

Predicate = Callable[[NodeContext], Supported | Unsupported]
Check = Callable[[Match], Supported | Unsupported]
AttrsGetter = Callable[[Match], Mapping[str, str]]


class _Analysed:
    """A pattern and its matcher, which is created on first use.

    Args:
        pattern: The pattern.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    @cached_property
    def matcher(self) -> Matcher:
        return Matcher(self.pattern)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionPattern:
    """A group of operators that a toolchain has one kernel for.

    Attributes:
        name: Label of the composite, e.g. `"cutlass.dense_bias_relu"`.
        pattern: Pattern of the group.
        annotations: Parts of the pattern by name. Their values are captured under these names, besides those
            that the pattern names itself; so one pattern may be annotated differently for several toolchains.
        check: May refuse a match with a reason.
        attrs_getter: Returns the attributes of the composite, as strings.
        priority: Patterns of higher priority come first if a toolchain is to cover as much as it can; among equals,
            those registered first.

    Raises:
        ValueError: If an annotation is no part of the pattern.
    """

    name: str
    pattern: Pattern
    annotations: Mapping[str, Pattern] = dataclasses.field(default_factory=dict, hash=False)
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None
    priority: int = 0
    _analysed: _Analysed | None = dataclasses.field(default=None, repr=False, compare=False)
    """Shared with copies made by `dataclasses.replace`: large patterns take milliseconds to analyse."""

    def __post_init__(self) -> None:
        if self._analysed is None or self._analysed.pattern is not self.pattern:
            object.__setattr__(self, "_analysed", _Analysed(self.pattern))
        if self.annotations:
            inside = reachable(self.pattern)
            strange = [name for name, part in self.annotations.items() if part not in inside]
            if strange:
                raise ValueError(f"annotation {strange[0]!r} of pattern {self.name!r} is no part of the pattern")

    def match(self, graph: DataflowGraph, index: int) -> Match | Mismatch:
        """Match the pattern with its root at one node; `check` is not called.

        Args:
            graph: The graph.
            index: The node.
        """
        assert self._analysed is not None, "made when this was"
        found = self._analysed.matcher.match(graph, index)
        return found.annotated(self.annotations) if isinstance(found, Match) else found


class PatternTable:
    """Patterns and predicates that a plugin registers for one target.

    Examples:
        >>> from collage_core.patterns import is_constant, is_op, wildcard
        >>> table = PatternTable()
        >>> table.pattern("mock.dense", is_op("MatMul")(wildcard(), is_constant()))
        >>> table.predicate("Relu", lambda node: Supported())
        >>> [entry.name for entry in table.patterns], list(table.predicates)
        (['mock.dense'], ['Relu'])
    """

    def __init__(self) -> None:
        self._patterns: dict[str, FusionPattern] = {}
        self._predicates: dict[str, Predicate] = {}

    def pattern(
        self,
        name: str,
        pattern: Pattern,
        *,
        annotations: Mapping[str, Pattern] | None = None,
        check: Check | None = None,
        attrs_getter: AttrsGetter | None = None,
        priority: int = 0,
    ) -> None:
        """Add a pattern; earlier ones have priority when the toolchain takes as many nodes as it can.

        Args:
            name: Label of the composite; unique in the table.
            pattern: Pattern of the group.
            annotations: Parts of the pattern whose values are captured, by name.
            check: Called with each match; may refuse it with a reason.
            attrs_getter: Called with each accepted match; the attributes it returns are attached to the composite.
            priority: Puts the pattern before those of lower priority, whenever they were added.

        Raises:
            ValueError: If the name is taken or empty, or an annotation is not a part of the pattern.
            TypeError: If `pattern` is not a pattern.
        """
        if not isinstance(pattern, Pattern):
            raise TypeError(f"pattern {name!r} is {type(pattern).__name__}, not a Pattern")
        self.add(
            FusionPattern(
                name=name,
                pattern=pattern,
                annotations=dict(annotations or {}),
                check=check,
                attrs_getter=attrs_getter,
                priority=priority,
            )
        )

    def add(self, entry: FusionPattern) -> None:
        """Add a ready-made entry.

        Raises:
            ValueError: If its name is taken or empty.
        """
        if not entry.name or entry.name in self._patterns:
            raise ValueError(f"patterns have unique names; {entry.name!r} is taken or empty")
        self._patterns[entry.name] = entry

    def predicate(self, op: str, predicate: Predicate) -> None:
        """Register the predicate that decides which nodes of one operator the toolchain supports.

        Args:
            op: `"Conv"`, `"domain::Op"`, or `"*"` for every operator without a predicate of its own.
            predicate: Returns `Supported`, or `Unsupported` with the reason.

        Raises:
            ValueError: If the operator has a predicate already.
            TypeError: If the predicate is not callable.
        """
        if not callable(predicate):
            raise TypeError(f"the predicate of {op!r} is {type(predicate).__name__}, which cannot be called")
        if op in self._predicates:
            raise ValueError(f"operator {op!r} has a predicate already")
        self._predicates[op] = predicate

    @property
    def patterns(self) -> tuple[FusionPattern, ...]:
        """The patterns, in priority order."""
        return tuple(sorted(self._patterns.values(), key=lambda entry: -entry.priority))

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        """The predicates, by the `op` they were registered for."""
        return MappingProxyType(self._predicates)

    def supports(self, graph: DataflowGraph, index: int) -> Supported | Unsupported:
        """Apply the predicates to one node."""
        context = NodeContext(graph, index)
        key = f"{context.domain}::{context.op_type}" if context.domain else context.op_type
        predicate = self._predicates.get(key) or self._predicates.get("*")
        return Unsupported(f"no predicate takes {key}") if predicate is None else predicate(context)
