"""Finding all blocks of a graph, and the exports in which they are found."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import pytest

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.patterns import Match, Matcher
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.attention import attention_pattern
from collage_core.patterns.library.normalisation import layer_norm_pattern, rms_norm_pattern
from tests.exports.blocks import CHAINS, MODELS, blocks
from tests.exports.reading import FORMS, MAIN_FORMS

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
SORTS = ("attention", "gelu", "gelu_tanh", "silu", "layer_norm", "rms_norm")
"""Those that whole models have."""


def cases(names: Iterable[str], forms: Iterable[str]) -> pytest.MarkDecorator:
    """All exports with these names; those in other forms than these take too long for every day."""
    return pytest.mark.parametrize(
        ("name", "form"),
        [pytest.param(n, f, marks=() if f in forms else pytest.mark.slow) for n in names for f in FORMS],
    )


every_model = cases(MODELS, MAIN_FORMS)
every_model_in_one_form = cases(MODELS, ("dynamo",))
every_small_chain = cases(("activations", "normalisations"), ("torchscript",))
every_large_chain = cases(sorted(set(CHAINS) - {"activations", "normalisations"}), ())


def check_counts(graph: DataflowGraph, name: str, sorts: Iterable[str]) -> None:
    """There are as many blocks of each sort as the configuration of an export has."""
    wanted = dataclasses.asdict(blocks(name))
    assert {sort: len(blocks_in(graph, BUILDERS[sort])) for sort in sorts} == {sort: wanted[sort] for sort in sorts}


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
