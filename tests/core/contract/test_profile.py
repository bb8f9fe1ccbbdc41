"""A profile cannot be one that adds up to nonsense, and names nodes that are there."""

from __future__ import annotations

import math

import pytest

from collage_core.contract import KernelProfile, ProfiledPart, UnattributedTime
from collage_core.contract.answers import profile_problem
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import single_matmul

GRAPH = DataflowGraph(single_matmul(2, 2, 2))
FUNCTION = kernel_function(SubGraph(GRAPH, 1), "kernel")
[NODE] = GRAPH.names


def profile(*names: str, time_us: float = 1.0) -> KernelProfile:
    return KernelProfile(parts=(ProfiledPart(nodes=names, time_us=time_us),))


@pytest.mark.parametrize(("time_us", "conversion_us"), [(-1.0, 0.0), (math.nan, 0.0), (math.inf, 0.0), (1.0, 2.0)])
def test_times_are_finite_and_not_negative(time_us: float, conversion_us: float) -> None:
    with pytest.raises(ValueError, match="times are finite"):
        ProfiledPart(nodes=("a",), time_us=time_us, conversion_us=conversion_us)
    if conversion_us == 0.0:
        with pytest.raises(ValueError, match="times are finite"):
            UnattributedTime(name="reorder", time_us=time_us)


def test_no_node_is_in_two_parts() -> None:
    parts = (ProfiledPart(nodes=("a", "b"), time_us=1.0), ProfiledPart(nodes=("b",), time_us=1.0))

    with pytest.raises(ValueError, match="node 'b' is in two parts"):
        KernelProfile(parts=parts)


def test_something_takes_time() -> None:
    with pytest.raises(ValueError, match="takes time"):
        profile("a", time_us=0.0)
    with pytest.raises(ValueError, match="takes time"):  # what belongs to no node says nothing of any
        KernelProfile(parts=(), unattributed=(UnattributedTime(name="reorder", time_us=5.0),))
    with pytest.raises(ValueError, match="at least one node"):
        profile()


def test_it_names_nodes_of_the_function_and_is_of_the_types_it_says() -> None:
    assert profile_problem(profile(NODE), FUNCTION) == ""
    assert profile_problem(profile("another"), FUNCTION) == "the function has no node 'another'"
    wrong = KernelProfile(parts=(ProfiledPart(nodes=(NODE,), time_us=1),))
    assert profile_problem(wrong, FUNCTION) == "parts[0].time_us is int, not float"
