"""Analyse patterns statically: self-contained parts, and which nodes a match includes."""

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
    """Return the parts of a pattern whose sub-patterns are not referenced from outside the part.

    How such a part matches a value does not affect the rest of the pattern; only whether it matches does. The
    result is empty if a function makes patterns, because it may refer to anything.
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
    """Return whether a matched value's producer is always inside the match, whichever alternative matches."""
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
    """Return the operator types a pattern's root node may have; None if this is not known statically.

    Most nodes cannot be the root of a pattern; this check rejects them without a search.
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
    """Return whether a function makes any repeated part, at any depth."""
    repeated = [each for each in map(repeats, reachable(root)) if each is not None]
    return any(not isinstance(each, Pattern) or _has_functions(each) for each in repeated)
