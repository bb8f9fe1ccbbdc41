"""How far a match has come: a value that every step of the search makes another of."""

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
        bound: The value of each pattern seen, so that a shared one matches once.
        captures: Values by name, in the order in which they were met.
        excluded: What must not match, and where; decided when all that is shared with it has its value.
    """

    nodes: int = 0
    bound: Mapping[Pattern, onnx_ir.Value | None] = dataclasses.field(default_factory=dict)
    captures: Mapping[str, tuple[onnx_ir.Value, ...]] = dataclasses.field(default_factory=dict)
    excluded: tuple[tuple[Pattern, onnx_ir.Value], ...] = ()

    # Written out, because this is what matching spends its time on: `dataclasses.replace` takes several times as long.

    def taking(self, nodes: int) -> Partial:
        """With more nodes inside."""
        return Partial(self.nodes | nodes, self.bound, self.captures, self.excluded)

    def binding(self, pattern: Pattern, value: onnx_ir.Value | None) -> Partial:
        """With the value that a pattern matched."""
        return Partial(self.nodes, {**self.bound, pattern: value}, self.captures, self.excluded)

    def excluding(self, excluded: tuple[tuple[Pattern, onnx_ir.Value], ...]) -> Partial:
        """With other things that must not match."""
        return Partial(self.nodes, self.bound, self.captures, excluded)

    def capturing(self, name: str, value: onnx_ir.Value | None) -> Partial:
        """With one more value under a name, unless it is there already."""
        known = self.captures.get(name, ())
        if value is None or value in known:
            return self
        return Partial(self.nodes, self.bound, {**self.captures, name: (*known, value)}, self.excluded)

    @property
    def first_captured(self) -> dict[str, onnx_ir.Value]:
        """The first value of each name."""
        return {name: values[0] for name, values in self.captures.items()}
