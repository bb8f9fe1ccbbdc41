"""Finding all blocks of a graph."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import Match, Matcher
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.attention import attention_pattern
from collage_core.patterns.library.normalisation import layer_norm_pattern, rms_norm_pattern
from tests.exports.reading import read, read_with_shapes

BUILDERS = {
    "attention": Matcher(attention_pattern()),
    "gelu": Matcher(gelu_pattern(approximate="none")),
    "gelu_tanh": Matcher(gelu_pattern(approximate="tanh")),
    "quick_gelu": Matcher(quick_gelu_pattern()),
    "silu": Matcher(silu_pattern()),
    "layer_norm": Matcher(layer_norm_pattern()),
    "layer_norm_of_two_axes": Matcher(layer_norm_pattern(axes=(-2, -1))),
    "layer_norm_of_channels": Matcher(layer_norm_pattern(axes=(1,))),
    "rms_norm": Matcher(rms_norm_pattern()),
}


@functools.cache
def graph_of(name: str, form: str, *, prepared: bool) -> DataflowGraph:
    """An export as it is, or after `passes.prepare`."""
    return DataflowGraph(prepare(read(name, form)) if prepared else read_with_shapes(name, form))


def matches(graph: DataflowGraph, matcher: Matcher) -> Iterator[Match]:
    """All matches, the ones furthest from the inputs first."""
    for index in reversed(range(len(graph))):
        found = matcher.match(graph, index)
        if isinstance(found, Match):
            yield found


def blocks_in(graph: DataflowGraph, matcher: Matcher) -> list[Match]:
    """The matches that are no parts of others.

    Raises:
        AssertionError: If two overlap otherwise: then it would be a matter of taste how many there are.
    """
    whole: list[Match] = []
    for found in matches(graph, matcher):
        around = [each for each in whole if each.nodes & found.nodes]
        if any(found.nodes & ~each.nodes for each in around):
            names = [[graph.names[index] for index in iterate_bits(each.nodes)] for each in (found, *around)]
            raise AssertionError(f"these overlap: {names}")
        if not around:
            whole.append(found)
    return whole
