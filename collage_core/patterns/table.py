"""What one target takes: patterns in priority order, and predicates of single operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType

from collage_core.contract.support import Supported, Unsupported
from collage_core.ir.dataflow import DataflowGraph
from collage_core.patterns.context import NodeContext
from collage_core.patterns.matcher import Match
from collage_core.patterns.pattern import Pattern

Predicate = Callable[[NodeContext], Supported | Unsupported]
Check = Callable[[Match], Supported | Unsupported]
AttrsGetter = Callable[[Match], Mapping[str, str]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class FusionPattern:
    """A group of operators a toolchain has one kernel for.

    Attributes:
        name: Label of the composite, e.g. `"cutlass.dense_bias_relu"`.
        pattern: What it looks like.
        check: May refuse a match with a reason.
        attrs_getter: What goes with the composite, as strings.
    """

    name: str
    pattern: Pattern
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None


class PatternTable:
    """Filled by a plugin for one target.

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
        check: Check | None = None,
        attrs_getter: AttrsGetter | None = None,
    ) -> None:
        """Adds a pattern; those added first have priority where the toolchain is asked to take all it can.

        Args:
            name: Label of the composite; unique in the table.
            pattern: What the group looks like.
            check: Called with each match; may refuse it with a reason.
            attrs_getter: Called with each accepted match; its answer goes with the composite.

        Raises:
            ValueError: If the name is taken or empty.
            TypeError: If it is no pattern.
        """
        if not isinstance(pattern, Pattern):
            raise TypeError(f"pattern {name!r} is {type(pattern).__name__}, not a Pattern")
        if not name or name in self._patterns:
            raise ValueError(f"patterns have unique names; {name!r} is taken or empty")
        self._patterns[name] = FusionPattern(name=name, pattern=pattern, check=check, attrs_getter=attrs_getter)

    def predicate(self, op: str, predicate: Predicate) -> None:
        """Says which nodes of one operator the toolchain runs.

        Args:
            op: `"Conv"`, `"domain::Op"`, or `"*"` for every operator without a predicate of its own.
            predicate: Answers `Supported`, or `Unsupported` with the reason.

        Raises:
            ValueError: If the operator has a predicate already.
            TypeError: If it cannot be called.
        """
        if not callable(predicate):
            raise TypeError(f"the predicate of {op!r} is {type(predicate).__name__}, which cannot be called")
        if op in self._predicates:
            raise ValueError(f"operator {op!r} has a predicate already")
        self._predicates[op] = predicate

    @property
    def patterns(self) -> tuple[FusionPattern, ...]:
        """The patterns, in priority order."""
        return tuple(self._patterns.values())

    @property
    def predicates(self) -> Mapping[str, Predicate]:
        """The predicates, by what they were registered for."""
        return MappingProxyType(self._predicates)

    def supports(self, graph: DataflowGraph, index: int) -> Supported | Unsupported:
        """What the predicates say of one node."""
        context = NodeContext(graph, index)
        key = f"{context.domain}::{context.op_type}" if context.domain else context.op_type
        predicate = self._predicates.get(key) or self._predicates.get("*")
        return Unsupported(f"no predicate takes {key}") if predicate is None else predicate(context)
