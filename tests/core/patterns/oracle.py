"""What a pattern matches, by enumeration, written from docs/plugin-authors/patterns.md.

There is no search here and no partial match. The values of the parts that are used several times are given: all ways
to give them are enumerated. Then the parts of a pattern have nothing to do with each other, and the ways in which the
whole matches are the product of the ways of its parts. Which way is preferred is told afterwards, by the choices each
made in the order of reading.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import onnx_ir

from tests.core.patterns import specs
from tests.core.patterns.specs import Spec, children

ONNX_COMMUTATIVE = ("Add", "Mul", "Max", "Min", "Sum", "Mean")


@dataclasses.dataclass(frozen=True)
class Way:
    """One way in which a pattern matches.

    Attributes:
        nodes: Positions of the nodes inside.
        captures: Names with values, operands first.
        choices: What was chosen where, in the order of reading.
        touched: Parts used several times that have a say in it.
        excluded: What must not match.
    """

    nodes: frozenset[int] = frozenset()
    captures: tuple[tuple[str, onnx_ir.Value], ...] = ()
    choices: tuple[tuple[object, int], ...] = ()
    touched: frozenset[Spec] = frozenset()
    excluded: tuple[tuple[Spec, onnx_ir.Value], ...] = ()

    def and_then(self, other: Way) -> Way:
        return Way(
            self.nodes | other.nodes,
            tuple(dict.fromkeys(self.captures + other.captures)),
            tuple(dict.fromkeys(self.choices + other.choices)),
            self.touched | other.touched,
            self.excluded + other.excluded,
        )


Given = Mapping[Spec, tuple[onnx_ir.Value | None, Way] | None]
"""By part: its value and the way it matches it, or None if it is not used."""


def chose(where: object, which: int) -> Way:
    return Way(choices=((where, which),))


class Oracle:
    """Answers for one graph.

    Args:
        nodes: Its nodes, in the order of their numbers.
        outputs: Its outputs.
        opset: Version of every domain.
    """

    def __init__(self, nodes: Sequence[onnx_ir.Node], outputs: Sequence[onnx_ir.Value], opset: int) -> None:
        self.nodes = nodes
        self.outputs = outputs
        self.opset = opset
        self.values: list[onnx_ir.Value] = []
        for node in nodes:
            for value in (*node.inputs, *node.outputs):
                if value is not None and not any(value is known for known in self.values):
                    self.values.append(value)

    def matches(self, pattern: Spec) -> dict[int, Way]:
        """The preferred way by position of each node at which the pattern matches."""
        found: dict[int, Way] = {}
        for given in self.assignments(pattern, {}):
            for position, node in enumerate(self.nodes):
                for place, output in enumerate(node.outputs):
                    for way in self.ways(pattern, output, given):
                        way = chose("root", place).and_then(way)
                        known = found.get(position)
                        if (
                            position in way.nodes
                            and (known is None or preferred(way, known))
                            and self.holds(way, given, {})
                        ):
                            found[position] = way
        return found

    def holds(self, way: Way, given: Given, outside: Given) -> bool:
        """Whether nothing matches that must not, given what has its value there and outside of there."""
        settled = {**outside, **{part: given[part] for part in way.touched}}
        return not any(
            self.holds(inner, assignment, settled)
            for excluded, value in way.excluded
            for assignment in self.assignments(excluded, settled)
            for inner in self.ways(excluded, value, assignment)
        )

    def assignments(self, pattern: Spec, settled: Given) -> Iterator[Given]:
        """All ways to give values to the parts that are used several times and have none."""
        parts = [part for part in used_several_times(pattern) if part not in settled]

        def extended(given: Given, left: Sequence[Spec]) -> Iterator[Given]:
            if not left:
                yield given
                return
            part, *others = left
            yield from extended({**given, part: None}, others)
            for value in (*self.values, None):
                for way in self.ways_itself(part, value, given):
                    yield from extended({**given, part: (value, way)}, others)

        return extended(settled, parts)

    def ways(self, pattern: Spec, value: onnx_ir.Value | None, given: Given) -> Iterable[Way]:
        """The ways in which a pattern matches a value."""
        if pattern not in given:
            return self.ways_itself(pattern, value, given)
        known = given[pattern]
        if known is None or known[0] is not value:
            return ()
        return (known[1].and_then(Way(touched=frozenset({pattern}))),)

    def ways_itself(self, pattern: Spec, value: onnx_ir.Value | None, given: Given) -> list[Way]:
        """The ways of a pattern that has no value yet; of those that differ in choices alone, the preferred one."""
        found: dict[object, Way] = {}
        for way in self.ways_of(pattern, value, given):
            what = (way.nodes, way.captures, way.touched, way.excluded)
            known = found.get(what)
            found[what] = way if known is None or preferred(way, known) else known
        return list(found.values())

    def ways_of(self, pattern: Spec, value: onnx_ir.Value | None, given: Given) -> list[Way]:
        match pattern:
            case specs.Absent():
                return [Way()] if value is None else []
            case specs.Or(left, right) | specs.Optional(wrapped=left, inner=right):
                return [
                    chose(pattern, which).and_then(way)
                    for which, part in enumerate((left, right))
                    for way in self.ways(part, value, given)
                ]
            case specs.And(left, right):
                return self.all_of([(left, value), (right, value)], given)
            case specs.Named(inner, name):
                captured = () if value is None else ((name, value),)
                return [way.and_then(Way(captures=captured)) for way in self.ways(inner, value, given)]
            case specs.Chain(meaning=meaning):
                return list(self.ways(meaning, value, given))
        return [] if value is None else self.ways_of_value(pattern, value, given)

    def ways_of_value(self, pattern: Spec, value: onnx_ir.Value, given: Given) -> list[Way]:
        constant, producer = value.const_value, value.producer()
        match pattern:
            case specs.Any():
                return [Way()]
            case specs.Non(inner):
                return [Way(excluded=((inner, value),))]
            case specs.Const(wanted):
                return [Way()] * (constant is not None and wanted in (None, constant.numpy().item()))
            case specs.Given(name):
                return [Way()] * (producer is None and constant is None and name in (None, value.name))
            case specs.Typed(inner, dtype, rank, shape):
                assert value.shape is not None
                assert value.dtype is not None
                extents = value.shape.numpy()
                fits = (
                    dtype in (None, value.dtype.name)
                    and rank in (None, len(extents))
                    and (
                        shape is None
                        or (
                            len(shape) == len(extents)
                            and all(w in (None, h) for w, h in zip(shape, extents, strict=True))
                        )
                    )
                )
                return list(self.ways(inner, value, given)) if fits else []
            case specs.UsedBy(inner, by, only):
                readers = self.readers(value)
                if only and (len(readers) != 1 or self.is_output(value)):
                    return []
                alone = list(self.ways(inner, value, given))
                if by is None:
                    return alone
                outputs = [output for reader in readers for output in self.nodes[reader].outputs]
                using = [
                    chose(pattern, which).and_then(way)
                    for which, output in enumerate(outputs)
                    for way in self.ways(by, output, given)
                ]
                return [way.and_then(use) for way in alone for use in using]
            case specs.Op():
                return self.ways_of_operator(pattern, value, given)
            case specs.Dominates():
                return self.ways_of_dominator(pattern, value, given)
        raise TypeError(pattern)

    def all_of(self, pairs: Iterable[tuple[Spec, onnx_ir.Value | None]], given: Given) -> list[Way]:
        ways = [Way()]
        for pattern, value in pairs:
            ways = [way.and_then(next_way) for next_way in self.ways(pattern, value, given) for way in ways]
        return ways

    def ways_of_operator(self, pattern: specs.Op, value: onnx_ir.Value, given: Given) -> list[Way]:
        node = value.producer()
        if node is None or (pattern.types and node.op_type not in pattern.types):
            return []
        first, last = pattern.versions
        if not (first or 0) <= self.opset <= (last or self.opset):
            return []
        if pattern.output is not None and not any(
            o is value for o in node.outputs[pattern.output : pattern.output + 1]
        ):
            return []
        if pattern.axis is not None and (
            "axis" not in node.attributes or node.attributes["axis"].value != pattern.axis
        ):
            return []
        itself = Way(nodes=frozenset({self.position(node)}))
        if pattern.operands is None:
            return [itself]
        operands = list(node.inputs)
        while operands and operands[-1] is None:
            operands.pop()
        further = max(0, len(operands) - len(pattern.operands))
        rest = pattern.rest or specs.Rest(at_most=0)
        if further < rest.at_least or (rest.at_most is not None and further > rest.at_most):
            return []
        operands += [None] * (len(pattern.operands) - len(operands))
        any_order = node.op_type in ONNX_COMMUTATIVE if pattern.any_order is None else pattern.any_order
        positions = range(len(operands))
        orders = itertools.permutations(positions, len(pattern.operands)) if any_order else [positions]
        ways = []
        for order in orders:
            chosen = [*order][: len(pattern.operands)]
            left = [position for position in positions if position not in chosen]
            placed = [itself]
            for number, (part, position) in enumerate(zip(pattern.operands, chosen, strict=True)):
                here = chose((pattern, number), position)
                placed = [
                    way.and_then(here).and_then(inner)
                    for way in placed
                    for inner in self.ways(part, operands[position], given)
                ]
            if rest.each is not None:
                others = [(rest.each.places[place], operands[position]) for place, position in enumerate(left)]
                placed = [way.and_then(other) for way in placed for other in self.all_of(others, given)]
            ways += placed
        return ways

    def ways_of_dominator(self, pattern: specs.Dominates, value: onnx_ir.Value, given: Given) -> list[Way]:
        producer = value.producer()
        if producer is None:
            return []
        end = self.position(producer)
        made = [v for node in reversed(self.nodes) for v in node.outputs]
        parents = made + [v for v in self.values if v.producer() is None]
        ways = []
        children_ways = list(self.ways(pattern.child, value, given))
        for which, parent in enumerate(parents if children_ways else ()):
            paths = self.paths(parent, end)
            if not paths:
                continue
            between = sorted(set().union(*paths))
            for child_way in children_ways:
                for parent_way in self.ways(pattern.parent, parent, given):
                    whole = [child_way.and_then(chose(pattern, which)).and_then(parent_way)]
                    for place, node in enumerate(between):
                        part = pattern.path.places[place]
                        whole = [
                            way.and_then(Way(nodes=frozenset({node})))
                            .and_then(chose((pattern, node), output))
                            .and_then(on)
                            for way in whole
                            for output, v in enumerate(self.nodes[node].outputs)
                            for on in self.ways(part, v, given)
                        ]
                    ways += whole
        return ways

    def paths(self, value: onnx_ir.Value, end: int) -> list[frozenset[int]] | None:
        """The nodes on each way from a value to a node; None if there is a way to an output that avoids the node."""
        if self.is_output(value):
            return None
        found: list[frozenset[int]] = []
        for reader in self.readers(value):
            if reader == end:
                found.append(frozenset())
                continue
            for output in self.nodes[reader].outputs:
                onward = self.paths(output, end)
                if onward is None:
                    return None
                found += [path | {reader} for path in onward]
        return found

    def readers(self, value: onnx_ir.Value) -> list[int]:
        return [place for place, node in enumerate(self.nodes) if any(read is value for read in node.inputs)]

    def is_output(self, value: onnx_ir.Value) -> bool:
        return any(value is output for output in self.outputs)

    def position(self, node: onnx_ir.Node) -> int:
        return next(place for place, each in enumerate(self.nodes) if each is node)


def preferred(way: Way, other: Way) -> bool:
    """Whether one way goes before another: the first choice in which they differ decides."""
    for (where, mine), (same, theirs) in zip(way.choices, other.choices, strict=False):
        assert where == same, "equal choices lead to the same next question"
        if mine != theirs:
            return mine < theirs
    return False


def used_several_times(pattern: Spec, *, excluded_too: bool = False) -> list[Spec]:
    """The parts with several places in a pattern, inner ones first; unless told, not those that only are in what must
    not match."""
    places: dict[Spec, int] = {}
    everything = parts(pattern, children)
    for part in everything:
        for child in children(part):
            places[child] = places.get(child, 0) + 1
    positive = parts(pattern, lambda part: () if isinstance(part, specs.Non) else children(part))
    return [part for part in (everything if excluded_too else positive) if places.get(part, 0) > 1]


def parts(pattern: Spec, below: Callable[[Spec], Iterable[Spec]]) -> list[Spec]:
    """All parts of a pattern, those a part is made of before it."""
    found: dict[Spec, None] = {}

    def visit(part: Spec) -> None:
        if part not in found:
            for child in below(part):
                visit(child)
            found[part] = None

    visit(pattern)
    return list(found)
