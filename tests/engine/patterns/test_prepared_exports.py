"""The builders find every block of real exports once prepared, and what they find computes what it is called."""

from __future__ import annotations

import functools

import numpy as np
import onnx_ir

from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.patterns import Match
from collage_core.patterns.library.attention_facts import attention_of
from tests.core.patterns.library import formulas
from tests.core.patterns.library.found import (
    BUILDERS,
    SORTS,
    blocks_in,
    check_counts,
    every_large_chain,
    every_model,
    every_model_in_one_form,
    every_small_chain,
)
from tests.exports.blocks import blocks
from tests.exports.reading import read

AXES = {"layer_norm_of_two_axes": (-2, -1), "layer_norm_of_channels": (1,)}


@functools.cache
def graph_of(name: str, form: str) -> DataflowGraph:
    return DataflowGraph(prepare(read(name, form)))


@every_model
def test_as_many_blocks_are_found_as_the_configuration_has(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, SORTS)


@every_small_chain
def test_every_way_of_writing_a_block_is_found_and_nothing_else(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, BUILDERS)


@every_large_chain
def test_every_way_of_writing_attention_or_a_block_of_half_precision_is_found(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, BUILDERS)


@every_model
def test_attention_has_the_heads_of_the_configuration(name: str, form: str) -> None:
    graph, wanted = graph_of(name, form), blocks(name)
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
        for match in blocks_in(graph_of(name, form), BUILDERS[sort])[:1]:
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
        for match in blocks_in(graph_of(name, form), matcher):
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
