"""Bytes that cross the boundary of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collage_core.ir.graph.masks import iterate_bits
from collage_core.search import SharedValue


def boundary_bytes(values: Iterable[SharedValue]) -> Callable[[int], float]:
    """Return a function that counts the bytes a kernel reads from outside and leaves for others.

    Args:
        values: Values of the graph. Those of unknown size count nothing, and constants are not listed.

    Examples:
        >>> first = SharedValue(producer=None, readers=0b01, size_bytes=8, starts_on="cpu")
        >>> between = SharedValue(producer=0, readers=0b10, size_bytes=100)
        >>> count = boundary_bytes([first, between])
        >>> count(0b01), count(0b10), count(0b11)
        (108.0, 100.0, 8.0)
    """
    made: dict[int, list[int]] = {}
    read: dict[int, list[int]] = {}
    listed = tuple(values)
    for at, value in enumerate(listed):
        if value.producer is not None:
            made.setdefault(value.producer, []).append(at)
        for node in iterate_bits(value.readers):
            read.setdefault(node, []).append(at)
    known: dict[int, float] = {}

    def nbytes(nodes: int) -> float:
        if nodes not in known:
            inside = {at for node in iterate_bits(nodes) for at in made.get(node, ())}
            entering = {at for node in iterate_bits(nodes) for at in read.get(node, ())} - inside
            leaving = {at for at in inside if listed[at].ends_on or listed[at].readers & ~nodes}
            known[nodes] = float(sum(listed[at].size_bytes or 0 for at in entering | leaving))
        return known[nodes]

    return nbytes
