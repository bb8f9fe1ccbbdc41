"""The builders find every block of real exports as they are, and nothing else.

How many blocks there are comes from the models' configurations (`tests/exports/blocks.py`).
"""

from __future__ import annotations

import functools

from collage_core.ir.graph.dataflow import DataflowGraph
from tests.core.patterns.library.found import (
    BUILDERS,
    SORTS,
    check_counts,
    every_large_chain,
    every_model,
    every_small_chain,
)
from tests.exports.reading import read_with_shapes


@functools.cache
def graph_of(name: str, form: str) -> DataflowGraph:
    return DataflowGraph(read_with_shapes(name, form))


@every_model
def test_as_many_blocks_are_found_as_the_configuration_has(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, SORTS)


@every_small_chain
def test_every_way_of_writing_a_block_is_found_and_nothing_else(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, BUILDERS)


@every_large_chain
def test_every_way_of_writing_attention_or_a_block_of_half_precision_is_found(name: str, form: str) -> None:
    check_counts(graph_of(name, form), name, BUILDERS)
