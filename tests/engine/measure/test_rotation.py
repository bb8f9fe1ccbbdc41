"""How many copies of weights go past a cache, against a cache of least recent use that is read in turn."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from collage.measure.clocks import rotation
from collage.measure.clocks.rotation import MOST_COPIES, copies_needed, rotated, weights_bytes_of
from collage_core.contract import Artifact, converted
from collage_core.errors import DeviceLostError, DeviceMemoryError, PluginError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from collage_testing.kit import FakeDevice
from collage_testing.kit.fake_time import MISS_BYTES_PER_US, FakeTime

MUCH = 1 << 40


def missed(copies: int, weights: int, cache: int, input_bytes: int) -> set[int]:
    """Bytes of weights that each call of the second round finds missing."""
    time = FakeTime(cache_bytes=cache)
    found = set()
    for turn in range(2 * copies):
        began_us = time.clock_us
        time.spend(0.0, 0.0, reads=[(1, input_bytes), (10 + turn % copies, weights)])
        if turn >= copies:
            found.add(round((time.clock_us - began_us) * MISS_BYTES_PER_US))
    return found


@settings(max_examples=60)
@given(weights=st.integers(40, 4000), cache=st.integers(200, 2000), input_bytes=st.integers(1, 100))
def test_every_copy_is_gone_when_its_turn_comes_and_what_is_read_each_time_stays(
    weights: int, cache: int, input_bytes: int
) -> None:
    assume(weights > cache or weights + input_bytes <= cache)  # otherwise the weights push out the input
    copies = copies_needed(weights, cache, MUCH)

    assert missed(copies, weights, cache, input_bytes) == {weights}
    if copies > 2:  # two fewer, and the input, fit
        fewer = copies - 2
        if fewer * weights + input_bytes <= cache:
            assert missed(fewer, weights, cache, input_bytes) == {0}


@given(weights=st.integers(0, 1 << 40), cache=st.integers(0, 1 << 30), free=st.integers(0, 1 << 40))
def test_copies_are_bounded_by_memory_and_number(weights: int, cache: int, free: int) -> None:
    copies = copies_needed(weights, cache, free)

    assert 1 <= copies <= MOST_COPIES
    assert (copies - 1) * weights <= free / 2


def test_a_weights_size_is_that_of_what_is_asked_for_and_once_for_each() -> None:
    g = GraphBuilder()
    x, w = g.input("x", 4, 16), g.weight("w", 16, 16)
    shared = g.op("Add", g.op("MatMul", x, w), g.weight("row", 16))
    model = g.model(g.op("MatMul", g.op("MatMul", shared, w), g.constant("again", w.const_value.numpy())))  # type: ignore[union-attr]
    graph = DataflowGraph(model)
    function = kernel_function(SubGraph(graph, graph.all_mask), "whole")
    of = {content: name for name, content in function.constants.items()}
    [heavy] = [content for content, name in of.items() if name != "row"]
    [row] = set(of) - {heavy}

    def size(**constants: str) -> int:
        return weights_bytes_of(function, Artifact(files={}, constants=constants))

    assert size(w=heavy, row=row) == 16 * 16 * 4 + 16 * 4
    assert size(w=converted(heavy, onnx_ir.DataType.FLOAT16), row=row) == 16 * 16 * 2 + 16 * 4
    assert size(a=heavy, b=heavy, c=converted(heavy, onnx_ir.DataType.BFLOAT16), row=row) == 16 * 16 * (4 + 2) + 16 * 4
    assert size() == size(row=row) == 16 * 16 * 4 + 16 * 4  # what is not asked for is in the kernel's own files


def nothing() -> None:
    pass


@pytest.mark.parametrize(("answers", "copies"), [(9, 5), (2, 3), (0, 1)])
@pytest.mark.parametrize("ending", [None, DeviceMemoryError("fake:0", "full"), PluginError("t", "collage_load", "no")])
def test_a_kernel_that_cannot_be_loaded_again_is_timed_on_the_copies_there_are(
    answers: int, copies: int, ending: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation, "LOADING_S", 3600.0)
    made = iter(range(answers))

    def another() -> Callable[[], None] | None:
        if next(made, None) is not None:
            return nothing
        if ending is not None:
            raise ending
        return None

    device = FakeDevice(cache_bytes=4000).open("fake:0")

    assert len(rotated(nothing, another, 1000, device)) == copies


def test_copies_that_take_long_to_load_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LOADING_S", 0.0)

    assert rotated(nothing, lambda: nothing, 1000, FakeDevice(cache_bytes=4000).open("fake:0")) == [nothing]


def test_a_device_lost_meanwhile_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "LOADING_S", 3600.0)

    def another() -> None:
        raise PluginError("t", "collage_load", "it failed") from DeviceLostError("fake:0", "it does not answer")

    with pytest.raises(PluginError):
        rotated(nothing, another, 1000, FakeDevice(cache_bytes=4000).open("fake:0"))
