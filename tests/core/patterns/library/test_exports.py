"""The builders find every block of real exports, and nothing else; what they find computes what it is called.

How many blocks there are comes from the models' configurations (`tests/exports/blocks.py`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import onnx_ir
import pytest

from collage_core.patterns import Match
from collage_core.patterns.library.attention_facts import attention_of
from tests.core.patterns.library import formulas
from tests.core.patterns.library.found import BUILDERS, blocks_in, graph_of
from tests.exports.blocks import CHAINS, MODELS, blocks
from tests.exports.reading import FORMS, MAIN_FORMS

SORTS = ("attention", "gelu", "gelu_tanh", "silu", "layer_norm", "rms_norm")
AXES = {"layer_norm_of_two_axes": (-2, -1), "layer_norm_of_channels": (1,)}


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
in_both_states = pytest.mark.parametrize("prepared", [False, True], ids=["as_exported", "prepared"])


@every_model
@in_both_states
def test_as_many_blocks_are_found_as_the_configuration_has(name: str, form: str, prepared: bool) -> None:
    graph = graph_of(name, form, prepared=prepared)

    found = {sort: len(blocks_in(graph, BUILDERS[sort])) for sort in SORTS}

    wanted = dataclasses.asdict(blocks(name))
    assert found == {sort: wanted[sort] for sort in SORTS}


@every_small_chain
@in_both_states
def test_every_way_of_writing_a_block_is_found_and_nothing_else(name: str, form: str, prepared: bool) -> None:
    check_chain(name, form, prepared)


@every_large_chain
@in_both_states
def test_every_way_of_writing_attention_or_a_block_of_half_precision_is_found(
    name: str, form: str, prepared: bool
) -> None:
    check_chain(name, form, prepared)


def check_chain(name: str, form: str, prepared: bool) -> None:
    graph = graph_of(name, form, prepared=prepared)

    found = {sort: len(blocks_in(graph, matcher)) for sort, matcher in BUILDERS.items()}

    wanted = dataclasses.asdict(blocks(name))
    assert found == {sort: wanted[sort] for sort in BUILDERS}


@every_model
def test_attention_has_the_heads_of_the_configuration(name: str, form: str) -> None:
    graph, wanted = graph_of(name, form, prepared=True), blocks(name)
    for match in blocks_in(graph, BUILDERS["attention"]):
        facts = attention_of(match)
        heads = 2 if facts.key_layout == "heads_last" else 1
        query, key = graph.spec(facts.query).shape, graph.spec(facts.key).shape

        assert query is not None
        assert key is not None
        assert facts.key_layout != "transposed"
        assert (query[1], key[heads]) == (wanted.heads, wanted.key_value_heads)
        assert facts.groups == wanted.heads // wanted.key_value_heads
        assert graph.spec(facts.value).static_shape[1] == wanted.key_value_heads


@every_model_in_one_form
def test_a_block_computes_what_it_is_called(name: str, form: str) -> None:
    """The first of each sort of each model: the others differ by their weights."""
    for sort in SORTS:
        for match in blocks_in(graph_of(name, form, prepared=True), BUILDERS[sort])[:1]:
            check_values(sort, match)


@every_small_chain
def test_a_block_written_in_any_way_computes_what_it_is_called(name: str, form: str) -> None:
    check_all_values(name, form)


@every_large_chain
def test_attention_written_in_any_way_or_a_block_of_half_precision_computes_what_it_is_called(
    name: str, form: str
) -> None:
    check_all_values(name, form)


def check_all_values(name: str, form: str) -> None:
    for sort, matcher in BUILDERS.items():
        for match in blocks_in(graph_of(name, form, prepared=True), matcher):
            check_values(sort, match)


def check_values(sort: str, match: Match) -> None:
    found, values = formulas.computed(match)
    if sort == "attention":
        wanted = formulas.attention(attention_of(match), values)
    else:
        x = formulas.wide(values[match.captures["x"]])
        wanted = normalised(sort, match, x) if "norm" in sort else getattr(formulas, sort)(x)
    outputs = [output for node in match.contexts for output in node.outputs]
    tolerance = 1e-2 if any(output.dtype == onnx_ir.DataType.FLOAT16 for output in outputs) else 2e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * np.abs(wanted).max(), err_msg=sort)


def normalised(sort: str, match: Match, x: formulas.Array) -> formulas.Array:
    def constant(name: str, otherwise: float) -> formulas.Array:
        array = match.constant(name)
        return np.asarray(otherwise) if array is None else formulas.wide(array)

    root = match.producer(match.value)
    assert root is not None
    epsilon = float(constant("epsilon", root.attribute("epsilon", 1e-5)).reshape(()))
    axes = AXES.get(sort, (-1,))
    if sort == "rms_norm":
        return formulas.rms_norm(x, axes, constant("scale", 1), epsilon)
    return formulas.layer_norm(x, axes, constant("scale", 1), constant("bias", 0), epsilon)
