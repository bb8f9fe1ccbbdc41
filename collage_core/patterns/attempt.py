"""Search for one match, with backtracking; the search is complete.

`Attempt.matches` yields the ways in which a pattern matches a value, each as a state, in order of preference. They
are generated lazily, so that whatever follows in the pattern may request the next. A choice (the match of a shared
pattern, an operand order, an alternative) is therefore never final before the whole pattern matches.

Two rules avoid trying products of independent choices. If nothing outside a part of the pattern refers into it, its
match cannot matter elsewhere, and only its first match is used; and if such a part does not match a value, it is not
tried again on that value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.ir.values.content import constant_of
from collage_core.patterns.context import NodeContext
from collage_core.patterns.domination import dominated_values
from collage_core.patterns.matches import Mismatch
from collage_core.patterns.node_test import is_commutative, unlike
from collage_core.patterns.partial_match import Partial
from collage_core.patterns.pattern import (
    Absent,
    Alternative,
    Both,
    Capture,
    Constant,
    Constrained,
    Dominated,
    Input,
    Not,
    Operator,
    Pattern,
    Repeated,
    Used,
    Variadic,
    Wildcard,
    copied,
)
from collage_core.patterns.scopes import self_contained


class Attempt:
    """One search for a match; records the failure after the largest number of matched nodes."""

    def __init__(self, graph: DataflowGraph, contained: frozenset[Pattern]) -> None:
        self._graph = graph
        self._contained = contained
        self._failures: dict[tuple[Pattern, onnx_ir.Value | None, bool], Mismatch] = {}
        self._copies: dict[tuple[Pattern, int], Pattern] = {}
        self._excluding = 0  # how deep in what must not match: there, failing is what is wanted
        self.furthest: Mismatch | None = None

    def whole_matches(self, pattern: Pattern, value: onnx_ir.Value) -> Iterator[Partial]:
        """Yield the ways in which a whole pattern matches a value."""
        return self._decided(self.matches(pattern, value, Partial()))

    def matches(self, pattern: Pattern, value: onnx_ir.Value | None, state: Partial) -> Iterator[Partial]:
        """Yield the extensions of a partial match in which a pattern matches a value, preferred ones first."""
        if pattern in state.bound:
            if state.bound[pattern] is value:
                yield state
            else:
                self._failed(state, f"{_name(value)} is not the value matched before")
            return
        ways = self._contained_way if pattern in self._contained else self._ways
        for found in ways(pattern, value, state):
            yield found.binding(pattern, value)

    def _contained_way(self, pattern: Pattern, value: onnx_ir.Value | None, state: Partial) -> Iterator[Partial]:
        """Yield the preferred match of a self-contained pattern, one the rest of the pattern does not refer into."""
        attempt = (pattern, value, bool(self._excluding))
        known = self._failures.get(attempt)
        if known is not None:
            self._failed(state.taking(known.nodes), known.reason)
            return
        outer, self.furthest = self.furthest, None
        found = next(self._decided(self._ways(pattern, value, state.excluding(()))), None)
        inner, self.furthest = self.furthest, outer
        if inner is not None:
            self._note(inner)
        if found is not None:
            yield found.excluding(state.excluded)
        else:
            known = Mismatch(reason="", nodes=0) if inner is None else inner
            self._failures[attempt] = dataclasses.replace(known, nodes=known.nodes & ~state.nodes)

    def _ways(self, pattern: Pattern, value: onnx_ir.Value | None, state: Partial) -> Iterator[Partial]:
        match pattern:
            case Absent():
                if value is None:
                    yield state
                else:
                    self._failed(state, f"{_name(value)} should be absent")
            case Alternative(choices):
                for choice in choices:
                    yield from self.matches(choice, value, state)
            case Both(parts):
                yield from self._in_turn([_at(self, part, value) for part in parts], state)
            case Capture(inner, name):
                for found in self.matches(inner, value, state):
                    yield found.capturing(name, value)
            case _ if value is None:
                self._failed(state, "an operand is absent")
            case Wildcard():
                yield state
            case Not(inner):
                yield state.excluding((*state.excluded, (inner, value)))
            case Constant() | Input():
                yield from self._given(pattern, value, state)
            case Constrained(inner, holds, meaning):
                if holds(self._graph.spec(value)):
                    yield from self.matches(inner, value, state)
                else:
                    self._failed(state, f"{_name(value)} has not {meaning}")
            case Used():
                yield from self._used(pattern, value, state)
            case Operator():
                yield from self._operator(pattern, value, state)
            case Dominated():
                yield from self._dominated(pattern, value, state)
            case _:
                raise TypeError(f"{pattern!r} is no pattern")

    def _given(self, pattern: Constant | Input, value: onnx_ir.Value, state: Partial) -> Iterator[Partial]:
        tensor = constant_of(value)
        if isinstance(pattern, Input):
            if tensor is not None or value.producer() is not None or pattern.name not in (None, value.name):
                self._failed(state, f"{_name(value)} is not the graph's input {pattern.name or ''}".rstrip())
                return
        elif tensor is None:
            self._failed(state, f"{_name(value)} is not a constant")
            return
        elif pattern.holds is not None and not pattern.holds(np.asarray(tensor.numpy())):
            self._failed(state, f"{_name(value)} is not {pattern.meaning}")
            return
        yield state

    def _used(self, pattern: Used, value: onnx_ir.Value, state: Partial) -> Iterator[Partial]:
        users = self._graph.users(value)
        if pattern.only and (users.bit_count() != 1 or self._graph.is_graph_output(value)):
            also = ", and an output of the graph" * self._graph.is_graph_output(value)
            self._failed(state, f"{_name(value)} is read by {users.bit_count()} nodes{also}, not by one alone")
            return
        by = pattern.by
        for found in self.matches(pattern.inner, value, state):
            if by is None:
                yield found
                continue
            if not users:
                self._failed(found, f"no node reads {_name(value)}")
            for user in iterate_bits(users):
                for output in self._graph.nodes[user].outputs:
                    yield from self.matches(by, output, found)

    def _operator(self, pattern: Operator, value: onnx_ir.Value, state: Partial) -> Iterator[Partial]:
        index = self._graph.producer(value)
        if index is None:
            self._failed(state, f"{_name(value)} is an input or a constant, not from {pattern.words}")
            return
        if reason := unlike(pattern, NodeContext(self._graph, index), value):
            self._failed(state, reason)
            return
        inside = state.taking(1 << index)
        if pattern.operands is None:
            yield inside
            return
        node = self._graph.nodes[index]
        operands = list(node.inputs)
        while operands and operands[-1] is None:
            operands.pop()
        further = len(operands) - len(pattern.operands)
        least, most = (0, 0) if pattern.rest is None else (pattern.rest.at_least, pattern.rest.at_most)
        if max(further, 0) < least or (most is not None and further > most):
            wanted = f"{len(pattern.operands)}" if least == most == 0 else f"{len(pattern.operands) + least} or more"
            self._failed(inside, f"{self._graph.names[index]} has {len(operands)} operands, the pattern {wanted}")
            return
        operands += [None] * -further
        swapped = is_commutative(node) if pattern.any_order is None else pattern.any_order
        yield from self._placed(pattern, pattern.operands, operands, swapped, inside)

    def _placed(
        self,
        operator: Operator,
        patterns: Sequence[Pattern],
        operands: Sequence[onnx_ir.Value | None],
        any_order: bool,
        state: Partial,
    ) -> Iterator[Partial]:
        """Assign an operand to each pattern; match the remaining ones with the operator's variadic part."""
        if not patterns:
            yield from self._further_operands(operator, operands, state)
            return
        for place in range(len(operands) if any_order else 1):
            left = (*operands[:place], *operands[place + 1 :])
            for found in self.matches(patterns[0], operands[place], state):
                yield from self._placed(operator, patterns[1:], left, any_order, found)

    def _further_operands(
        self, operator: Operator, operands: Sequence[onnx_ir.Value | None], state: Partial
    ) -> Iterator[Partial]:
        match operator.rest:
            case Variadic(each=each) if each is not None:
                places = enumerate(operands)
                steps = [_at(self, self._copy(operator, each, place), operand) for place, operand in places]
                yield from self._in_turn(steps, state)
            case _:
                yield state

    def _dominated(self, pattern: Dominated, value: onnx_ir.Value, state: Partial) -> Iterator[Partial]:
        index = self._graph.producer(value)
        if index is None:
            self._failed(state, f"{_name(value)} is an input or a constant, which dominates nothing")
            return
        for child in self.matches(pattern.child, value, state):
            found_none = True
            for start, between in dominated_values(self._graph, index):
                found_none = False
                steps = [
                    self._on_path(self._copy(pattern, pattern.path, place), node)
                    for place, node in enumerate(iterate_bits(between))
                ]
                for parent in self.matches(pattern.parent, start, child):
                    yield from self._in_turn(steps, parent)
            if found_none:
                self._failed(
                    child, f"not all that is made of any earlier value goes through {self._graph.names[index]}"
                )

    def _on_path(self, pattern: Pattern, index: int) -> Callable[[Partial], Iterator[Partial]]:
        def step(state: Partial) -> Iterator[Partial]:
            inside = state.taking(1 << index)
            for output in self._graph.nodes[index].outputs:
                yield from self.matches(pattern, output, inside)

        return step

    def _in_turn(self, steps: Sequence[Callable[[Partial], Iterator[Partial]]], state: Partial) -> Iterator[Partial]:
        """Yield the ways through several steps, iteratively, because a path may be long."""
        if not steps:
            yield state
            return
        ways = [steps[0](state)]
        while ways:
            found = next(ways[-1], None)
            if found is None:
                ways.pop()
            elif len(ways) == len(steps):
                yield found
            else:
                ways.append(steps[len(ways)](found))

    def _copy(self, owner: Pattern, each: Repeated, place: int) -> Pattern:
        """Return the instance of a repeated pattern for one position; the same instance on every attempt."""
        made = self._copies.get((owner, place))
        if made is None:
            made = copied(each) if isinstance(each, Pattern) else each(place)
            if not isinstance(made, Pattern):
                raise TypeError(f"what is repeated is {type(made).__name__} at {place}, not a pattern")
            self._copies[owner, place] = made
            if isinstance(each, Pattern) and self._contained:
                self._contained |= self_contained(made)
        return made

    def _decided(self, ways: Iterator[Partial]) -> Iterator[Partial]:
        """Filter out the matches in which an excluded pattern matches."""
        for state in ways:
            for inner, value in state.excluded:
                if self._matches_at_all(inner, value, state):
                    self._failed(state, f"{_name(value)} is what the pattern excludes")
                    break
            else:
                yield state.excluding(())

    def _matches_at_all(self, pattern: Pattern, value: onnx_ir.Value, state: Partial) -> bool:
        self._excluding += 1
        ways = self._decided(self.matches(pattern, value, state.excluding(())))
        found = next(ways, None) is not None
        self._excluding -= 1
        return found

    def _failed(self, state: Partial, reason: str) -> None:
        furthest = -1 if self.furthest is None else self.furthest.nodes.bit_count()
        if not self._excluding and state.nodes.bit_count() > furthest:
            self.furthest = Mismatch(reason=reason, nodes=state.nodes, captures=state.first_captured)

    def _note(self, failure: Mismatch) -> None:
        if self.furthest is None or failure.nodes.bit_count() > self.furthest.nodes.bit_count():
            self.furthest = failure


def _at(attempt: Attempt, pattern: Pattern, value: onnx_ir.Value | None) -> Callable[[Partial], Iterator[Partial]]:
    """Return the step that matches a pattern at a value."""
    return lambda state: attempt.matches(pattern, value, state)


def _name(value: onnx_ir.Value | None) -> str:
    return "an absent operand" if value is None else f"{value.name!r}"
