"""A profile kept by positions is of the same nodes in every function of the same structure."""

from __future__ import annotations

import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collage.measure.profiling.saved_profiles import SavedPart, SavedProfile, document_name, profile_of, saved_parts
from collage.store import MemoryStore, RecordKey
from collage_core.contract import KernelProfile, ProfiledPart, UnattributedTime
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.canonical import Composite
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_testing import dense, random_model
from tests.core.fusion.test_marked import fused
from tests.core.ir.test_extract import reordered_and_renamed


def saved(sub_graph: SubGraph) -> SavedProfile:
    """A profile in which each node of the function takes its own time: 1, 2, 3, ... us."""
    function = kernel_function(sub_graph, "kernel")
    parts = tuple(
        ProfiledPart(nodes=(str(node.name),), time_us=float(number), conversion_us=0.5)
        for number, node in enumerate(function.model.graph, start=1)
    )
    rest = (UnattributedTime(name="wait", time_us=3.0),)
    return SavedProfile(
        variant="v",
        seconds=1.5,
        parts=saved_parts(KernelProfile(parts=parts, unattributed=rest), function),
        unattributed=rest,
        failure="",
        deadline_s=60.0,
    )


def whole(graph: DataflowGraph, *composites: Composite) -> SubGraph:
    return SubGraph(graph, graph.all_mask, composites=composites)


def flows(graph: DataflowGraph, profile: KernelProfile) -> set[tuple[float, float]]:
    """Which node feeds which, the nodes known by their times."""
    times = {graph.index_of(name): part.time_us for part in profile.parts for name in part.nodes}
    return {
        (times[before], times[index])
        for index in range(len(graph))
        for before in iterate_bits(graph.predecessors[index])
    }


def operators(graph: DataflowGraph, profile: KernelProfile) -> set[tuple[str, float]]:
    """Which operator takes which time."""
    return {(graph.nodes[graph.index_of(name)].op_type, part.time_us) for part in profile.parts for name in part.nodes}


@given(st.integers(0, 10_000))
@settings(max_examples=40, deadline=None)
def test_a_twin_with_other_names_and_another_order_has_the_same_times(seed: int) -> None:
    model = random_model(seed)
    for number, node in enumerate(model.graph):
        node.name = f"old{number}"
    graph = DataflowGraph(model)
    other = DataflowGraph(reordered_and_renamed(model, random.Random(seed))[0])
    kept = saved(whole(graph))

    own, twins = profile_of(kept, whole(graph)), profile_of(kept, whole(other))

    assert own is not None
    assert twins is not None
    assert operators(graph, own) == operators(other, twins)
    assert flows(graph, own) == flows(other, twins)
    assert own.unattributed == twins.unattributed == kept.unattributed


def test_a_profile_serves_every_version_of_the_plugin() -> None:
    key = RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t")

    assert document_name(key) == document_name(dataclasses.replace(key, plugin="p 1"))
    assert document_name(key) != document_name(dataclasses.replace(key, threads=1))


def test_a_composite_is_all_of_its_nodes() -> None:
    graph = DataflowGraph(dense(activation="Relu"))
    candidate = whole(graph, Composite("mock.dense", graph.all_mask))

    found = profile_of(saved(candidate), candidate)

    assert found is not None
    assert [part.nodes for part in found.parts] == [graph.names]


def test_what_an_inlined_call_computes_is_the_time_of_the_call() -> None:
    graph = DataflowGraph(fused())
    kept = saved(whole(graph))
    assert len(kept.parts) == 4

    found = profile_of(kept, whole(graph))

    assert found is not None
    assert [(part.nodes, part.conversion_us) for part in found.parts] == [
        (("exp_0",), 0.5),
        (("relu_0",), 1.0),
        (("softmax_0",), 0.5),
    ]
    assert found.attributed_us == sum(part.time_us for part in kept.parts)


def test_a_profile_of_something_larger_is_none() -> None:
    larger = saved(whole(DataflowGraph(dense(activation="Relu"))))

    assert profile_of(larger, whole(DataflowGraph(dense()))) is None


def test_it_survives_the_database() -> None:
    database, kept = MemoryStore(), saved(whole(DataflowGraph(dense())))

    database.put_document("name", kept)

    assert database.get_document(SavedProfile, "name") == kept


def test_it_is_a_profile_or_a_failure() -> None:
    part = SavedPart(positions=(0,), time_us=1.0, conversion_us=0.0)
    for parts, failure in (((), ""), ((part,), "crashed")):
        with pytest.raises(ValueError, match="a profile has parts, or it failed"):
            SavedProfile(variant="", seconds=0.0, parts=parts, unattributed=(), failure=failure, deadline_s=1.0)
