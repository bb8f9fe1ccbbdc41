"""Steps of a library become times of nodes: each is counted once, and where it belongs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import onnx_ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx_ir.passes.common import ShapeInferencePass

from collage_core.contract import (
    KernelFunction,
    KernelProfile,
    LibraryStep,
    ProfiledPart,
    UnattributedTime,
    Unsupported,
    attributed,
)
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_testing import random_model


def function_of(body: str) -> KernelFunction:
    """A function whose nodes have the name of their output."""
    model = onnx_ir.from_onnx_text(f'<ir_version: 10, opset_import: ["" : 21]> {body}')
    for node in model.graph:
        node.name = node.outputs[0].name
    graph = DataflowGraph(ShapeInferencePass()(model).model)
    return kernel_function(SubGraph(graph, graph.all_mask), "kernel")


CHAIN = function_of("g (float[2] x) => (float[2] d) { a = Relu(x)  b = Exp(a)  c = Tanh(b)  d = Neg(c) }")
RESIDUAL = function_of(
    "g (float[2,2] x) => (float[2,2] e) "
    "{ a = MatMul(x, x)  b = MatMul(a, a)  c = Add(b, a)  d = Relu(c)  e = MatMul(d, d) }"
)


def made(function: KernelFunction, steps: Sequence[LibraryStep]) -> KernelProfile:
    found = attributed(function, steps)
    assert isinstance(found, KernelProfile)
    return found


def times_of(profile: KernelProfile) -> dict[tuple[str, ...], float]:
    return {part.nodes: part.time_us for part in profile.parts}


def test_a_fused_step_is_one_part() -> None:
    steps = [LibraryStep(name="s", time_us=3.0, nodes=("a", "b")), LibraryStep(name="t", time_us=4.0, nodes=("c", "d"))]

    assert times_of(made(CHAIN, steps)) == {("a", "b"): 3.0, ("c", "d"): 4.0}


def test_a_step_that_names_its_last_node_only_has_those_before_it_too() -> None:
    steps = [
        LibraryStep(name="s", time_us=3.0, nodes=("b",)),
        LibraryStep(name="t", time_us=4.0, nodes=("d",), reads=(0,)),
    ]

    assert times_of(made(CHAIN, steps)) == {("a", "b"): 3.0, ("c", "d"): 4.0}


def test_what_a_decomposed_node_takes_is_added_up() -> None:
    steps = [
        LibraryStep(name="s", time_us=1.0, nodes=("a",)),
        LibraryStep(name="max", time_us=2.0, reads=(0,)),
        LibraryStep(name="sum", time_us=3.0, reads=(0, 1)),
        LibraryStep(name="divide", time_us=4.0, nodes=("d",), reads=(1, 2)),
    ]

    assert times_of(made(CHAIN, steps)) == {("a",): 1.0, ("b", "c", "d"): 9.0}


def test_a_conversion_counts_to_the_node_whose_result_it_converts() -> None:
    steps = [
        LibraryStep(name="in", time_us=1.0, converts=True),
        LibraryStep(name="s", time_us=2.0, nodes=("a", "b"), reads=(0,)),
        LibraryStep(name="out", time_us=5.0, reads=(1,), converts=True),
        LibraryStep(name="t", time_us=4.0, nodes=("c", "d"), reads=(2,)),
    ]

    assert made(CHAIN, steps).parts == (
        ProfiledPart(nodes=("a", "b"), time_us=8.0, conversion_us=6.0),  # with that of an input, which nothing writes
        ProfiledPart(nodes=("c", "d"), time_us=4.0),
    )


def test_steps_that_name_the_same_node_are_one_part_unless_there_is_more_to_them() -> None:
    split = [LibraryStep(name="s", time_us=1.0, nodes=("a",)), LibraryStep(name="t", time_us=2.0, nodes=("a",))]
    shared = [
        LibraryStep(name="s", time_us=1.0, nodes=("a", "b")),
        LibraryStep(name="t", time_us=2.0, nodes=("a", "c", "d")),
    ]

    assert times_of(made(CHAIN, split)) == {("a", "b", "c", "d"): 3.0}
    assert times_of(made(CHAIN, shared)) == {("a", "b"): 1.0, ("c", "d"): 2.0}


@pytest.mark.parametrize(("extends", "second"), [(True, ("b", "c", "d")), (False, ("b",))])
def test_a_step_that_extends_has_the_nodes_after_it_for_which_it_reads_everything(
    extends: bool, second: tuple[str, ...]
) -> None:
    steps = [
        LibraryStep(name="s", time_us=1.0, nodes=("a",)),
        LibraryStep(name="t", time_us=2.0, nodes=("b",), reads=(0,), extends=extends),
        LibraryStep(name="u", time_us=4.0, nodes=("e",), reads=(1,)),
    ]

    found = times_of(made(RESIDUAL, steps))

    assert found[second] == 2.0


def test_a_step_that_extends_leaves_the_next_product_to_the_step_that_names_what_follows() -> None:
    function = function_of("g (float[2,2] x) => (float[2,2] c) { a = MatMul(x, x)  b = MatMul(a, a)  c = Relu(b) }")
    steps = [
        LibraryStep(name="s", time_us=1.0, nodes=("a",), extends=True),
        LibraryStep(name="t", time_us=2.0, nodes=("c",), reads=(0,)),
    ]

    assert times_of(made(function, steps)) == {("a",): 1.0, ("b", "c"): 2.0}


def test_a_step_that_extends_leaves_a_node_for_which_it_lacks_an_operand() -> None:
    steps = [
        LibraryStep(name="s", time_us=1.0, nodes=("a",)),
        LibraryStep(name="t", time_us=2.0, nodes=("b",), extends=True),
        LibraryStep(name="u", time_us=4.0, nodes=("e",), reads=(0, 1)),
    ]

    assert times_of(made(RESIDUAL, steps)) == {("a",): 1.0, ("b",): 2.0, ("c", "d", "e"): 4.0}


def test_what_belongs_to_nothing_is_listed_largest_first() -> None:
    steps = [
        LibraryStep(name="s", time_us=6.0, nodes=("d",)),
        LibraryStep(name="small", time_us=1.0),
        LibraryStep(name="large", time_us=1.5),
        LibraryStep(name="large", time_us=1.5),
        LibraryStep(name="idle", time_us=0.0),
    ]

    profile = made(CHAIN, steps)

    assert profile.unattributed == (
        UnattributedTime(name="large", time_us=3.0),
        UnattributedTime(name="small", time_us=1.0),
    )
    assert (profile.attributed_us, profile.unattributed_us, profile.attributed_share) == (6.0, 4.0, 0.6)


def test_what_is_too_short_for_the_clock_is_a_refusal() -> None:
    found = attributed(CHAIN, [LibraryStep(name="s", time_us=0.0, nodes=("a",))])

    assert found == Unsupported("it is too short for the profiler's clock")


def test_a_step_reads_what_was_before_it() -> None:
    with pytest.raises(ValueError, match="reads step 0, which is not before it"):
        made(CHAIN, [LibraryStep(name="s", time_us=1.0, nodes=("a",), reads=(0,))])


def test_a_node_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError):
        made(CHAIN, [LibraryStep(name="s", time_us=1.0, nodes=("q",))])


def fused(graph: DataflowGraph, rng: random.Random) -> list[int]:
    """Masks of runs of consecutive nodes: groups that a library may fuse, in topological order."""
    cuts = [0, *sorted(rng.sample(range(1, len(graph)), rng.randrange(len(graph)))), len(graph)]
    return [(1 << end) - (1 << start) for start, end in itertools.pairwise(cuts)]


def steps_of(graph: DataflowGraph, groups: Sequence[int], named: Sequence[bool]) -> list[LibraryStep]:
    owner = {index: place for place, group in enumerate(groups) for index in iterate_bits(group)}
    steps = []
    for place, group in enumerate(groups):
        before = {owner[each] for index in iterate_bits(group) for each in iterate_bits(graph.predecessors[index])}
        nodes = tuple(graph.names[index] for index in iterate_bits(group)) if named[place] else ()
        reads = tuple(sorted(before - {place}))
        steps.append(LibraryStep(name=f"s{place}", time_us=float(2**place % 1013), nodes=nodes, reads=reads))
    return steps


@given(st.randoms(use_true_random=False), st.integers(1, 10))
def test_a_library_that_names_all_it_fuses_is_taken_at_its_word(rng: random.Random, operators: int) -> None:
    graph = DataflowGraph(random_model(rng, operators))
    groups = fused(graph, rng) if len(graph) > 1 else [graph.all_mask]

    profile = made(whole(graph), steps_of(graph, groups, [True] * len(groups)))

    wanted = [{graph.names[index] for index in iterate_bits(group)} for group in groups]
    assert [set(part.nodes) for part in sorted(profile.parts, key=lambda each: graph.index_of(each.nodes[0]))] == wanted
    assert profile.unattributed == ()


@given(st.randoms(use_true_random=False), st.integers(1, 10))
def test_no_time_is_lost_and_none_counts_twice(rng: random.Random, operators: int) -> None:
    graph = DataflowGraph(random_model(rng, operators))
    groups = fused(graph, rng) if len(graph) > 1 else [graph.all_mask]
    steps = steps_of(graph, groups, [rng.random() < 0.5 for _ in groups])

    profile = attributed(whole(graph), steps)

    if not any(step.nodes for step in steps):
        assert isinstance(profile, Unsupported)
        return
    assert isinstance(profile, KernelProfile)
    assert profile.total_us == sum(step.time_us for step in steps)
    named = [name for part in profile.parts for name in part.nodes]
    assert len(set(named)) == len(named)
    assert set(named) <= set(graph.names)


def whole(graph: DataflowGraph) -> KernelFunction:
    return kernel_function(SubGraph(graph, graph.all_mask), "kernel")
