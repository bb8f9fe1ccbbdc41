"""Labelled parts of a kernel in a plan file, such as the kernels of a library of which a region is made.

[{"composite": "cudnn.conv_bias", "nodes": ["conv_0", "add_0"], "parts": [...]}, ...]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from collage.errors import PlanFileError
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits

_INSIDE: Final = ".parts"
_DEEPEST: Final = 50


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A labelled part of a kernel.

    Attributes:
        composite: Label of the pattern that matched it.
        nodes: Names of its nodes.
        parts: Labelled parts inside it.
    """

    composite: str
    nodes: tuple[str, ...]
    parts: tuple[Part, ...] = ()


Shape: TypeAlias = frozenset[tuple[str, int, "Shape"]]
"""Labelled parts: of each its label, the mask of its nodes that need a kernel, and the parts inside."""


def described(graph: DataflowGraph, parts: Iterable[Composite]) -> list[dict[str, Any]]:
    """Convert labelled parts of a kernel to JSON."""
    found = []
    for part in sorted(parts, key=lambda each: each.nodes):
        names = [graph.names[index] for index in iterate_bits(part.nodes)]
        inside = {"parts": described(graph, part.parts)} if part.parts else {}
        found.append({"composite": part.label, "nodes": names, **inside})
    return found


def read_parts(source: str, where: str, values: object) -> tuple[Part, ...]:
    """Convert JSON to labelled parts.

    Args:
        source: The file, for messages.
        where: Whose parts they are, for messages.
        values: Anything that JSON can be.

    Raises:
        PlanFileError: If it is not what `described` gives.
    """
    if not isinstance(values, list):
        raise PlanFileError(source, f'"parts" of {where} is not a list')
    if where.count(_INSIDE) == _DEEPEST:
        raise PlanFileError(source, f'"parts" of {where} are more than {_DEEPEST} deep')
    found = []
    for number, value in enumerate(values):
        here = f"{where}{_INSIDE}[{number}]"
        composite, nodes = (value.get("composite"), value.get("nodes")) if isinstance(value, dict) else (None, None)
        if not isinstance(composite, str) or not composite:
            raise PlanFileError(source, f'{here} needs a "composite", the label of its pattern')
        if not isinstance(nodes, list) or not nodes or not all(isinstance(name, str) for name in nodes):
            raise PlanFileError(source, f'{here} needs "nodes", a list of names')
        inside = read_parts(source, here, value.get("parts", []))
        found.append(Part(composite=composite, nodes=tuple(nodes), parts=inside))
    return tuple(found)


def shape_of(graph: DataflowGraph, parts: Iterable[Composite]) -> Shape:
    """Return the shape of labelled parts of a kernel."""
    return frozenset((part.label, part.nodes & graph.needs_kernel, shape_of(graph, part.parts)) for part in parts)


def named_shape(graph: DataflowGraph, parts: Iterable[Part], mask: Callable[[Iterable[str]], int]) -> Shape:
    """Return the shape of the parts of a plan file.

    Args:
        graph: The graph.
        parts: The parts.
        mask: Returns the mask of nodes with some names.
    """
    return frozenset(
        (part.composite, mask(part.nodes) & graph.needs_kernel, named_shape(graph, part.parts, mask)) for part in parts
    )
