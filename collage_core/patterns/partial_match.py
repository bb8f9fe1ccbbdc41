"""State of a partial match: a value, from which every step of the search derives another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir

from collage_core.patterns.pattern import Pattern


@dataclasses.dataclass(frozen=True, slots=True)
class Partial:
    """A partial match.

    Attributes:
        nodes: Mask of the nodes inside.
        bound: The value of each pattern seen, so that a shared pattern matches one value.
        captures: Values by name, in the order of matching.
        excluded: Patterns that must not match, with their values; tested once all shared patterns are bound.
    """

    nodes: int = 0
    bound: Mapping[Pattern, onnx_ir.Value | None] = dataclasses.field(default_factory=dict)
    captures: Mapping[str, tuple[onnx_ir.Value, ...]] = dataclasses.field(default_factory=dict)
    excluded: tuple[tuple[Pattern, onnx_ir.Value], ...] = ()

    # Written out, because this is what matching spends its time on: `dataclasses.replace` takes several times as long.

    def taking(self, nodes: int) -> Partial:
        """Return a copy with more nodes inside the match."""
        return Partial(self.nodes | nodes, self.bound, self.captures, self.excluded)

    def binding(self, pattern: Pattern, value: onnx_ir.Value | None) -> Partial:
        """Return a copy with the value bound to a pattern."""
        return Partial(self.nodes, {**self.bound, pattern: value}, self.captures, self.excluded)

    def excluding(self, excluded: tuple[tuple[Pattern, onnx_ir.Value], ...]) -> Partial:
        """Return a copy with a different set of exclusions, patterns that must not match."""
        return Partial(self.nodes, self.bound, self.captures, excluded)

    def capturing(self, name: str, value: onnx_ir.Value | None) -> Partial:
        """Return a copy with one more value captured under a name, unless it is there already."""
        known = self.captures.get(name, ())
        if value is None or value in known:
            return self
        return Partial(self.nodes, self.bound, {**self.captures, name: (*known, value)}, self.excluded)

    @property
    def first_captured(self) -> dict[str, onnx_ir.Value]:
        """The first value captured under each name."""
        return {name: values[0] for name, values in self.captures.items()}
