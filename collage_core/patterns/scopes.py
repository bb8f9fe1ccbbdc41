"""What of a pattern can be seen from the pattern alone: which parts are by themselves, and what it takes inside."""

from __future__ import annotations

from collections.abc import Iterable

from collage_core.patterns.pattern import (
    Alternative,
    Both,
    Capture,
    Constrained,
    Dominated,
    Operator,
    Pattern,
    Used,
    parts,
    reachable,
    repeats,
)


def self_contained(root: Pattern) -> frozenset[Pattern]:
    """The parts of a pattern into which nothing outside of them refers.

    How such a part matches a value has no consequence for the rest of the pattern; that it does, has. None are known
    where a function makes patterns, for it may refer to anything.
    """
    if _has_functions(root):
        return frozenset()
    below = {part: tuple(parts(part)) for part in reachable(root)}

    def reached(starts: Iterable[Pattern], without: Pattern | None = None) -> set[Pattern]:
        seen = {without}
        pending = list(starts)
        while pending:
            part = pending.pop()
            if part not in seen:
                seen.add(part)
                pending.extend(below[part])
        return {part for part in seen if part is not None and part is not without}

    return frozenset(part for part in below if reached(below[part]).isdisjoint(reached([root], without=part)))


def takes_producer(pattern: Pattern) -> bool:
    """Whether the node a value comes from is inside the match, whichever way the pattern matches the value."""
    match pattern:
        case Operator():
            return True
        case Capture(inner) | Constrained(inner) | Used(inner) | Dominated(child=inner):
            return takes_producer(inner)
        case Alternative(choices):
            return all(map(takes_producer, choices))
        case Both(each):
            return any(map(takes_producer, each))
        case _:
            return False


def root_types(pattern: Pattern) -> frozenset[str] | None:
    """The types of which the node has to be whose output a pattern matches; None if that cannot be said.

    Most nodes are no candidates for a pattern's root, and are told so without a search.
    """
    match pattern:
        case Operator(op_types=types):
            return frozenset(types) or None
        case Capture(inner) | Constrained(inner) | Used(inner) | Dominated(child=inner):
            return root_types(inner)
        case Alternative(choices):
            known = [types for types in map(root_types, choices) if types is not None]
            return frozenset().union(*known) if len(known) == len(choices) else None
        case Both(each):
            return next((types for types in map(root_types, each) if types is not None), None)
        case _:
            return None


def _has_functions(root: Pattern) -> bool:
    """Whether something repeated is made by a function, at any depth."""
    repeated = [each for each in map(repeats, reachable(root)) if each is not None]
    return any(not isinstance(each, Pattern) or _has_functions(each) for each in repeated)
