"""Quantised groups of element-wise operators: integers are read and written, and no float goes through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Joins, Target
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_halide.pipeline import group_of
from collage_halide.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import WrittenFunction, written

_NUMBERS: dict[str, np.ndarray[Any, Any]] = {
    "sa": np.array(0.02, np.float32),
    "za": np.array(128, np.uint8),
    "sb": np.array(0.05, np.float32),
    "zb": np.array(100, np.uint8),
    "sy": np.array(0.04, np.float32),
    "zy": np.array(90, np.uint8),
    "twice": np.array([1, 1, 2, 2], np.float32),
}
_SHAPE = "1,6,10,12"
BODIES = {
    "Add": ("f = Add(da, db)", _SHAPE),
    "Mul": ("f = Mul(da, db)", _SHAPE),
    "Add and Relu": ("sum = Add(da, db) f = Relu(sum)", _SHAPE),
    "HardSwish": ("f = HardSwish(da)", _SHAPE),
    "LeakyRelu": ("f = LeakyRelu<alpha=0.1>(da)", _SHAPE),
    "MaxPool": ("f = MaxPool<kernel_shape=[2,2],strides=[2,2]>(da)", "1,6,5,6"),
    "GlobalAveragePool": ("f = GlobalAveragePool(da)", "1,6,1,1"),
    "Resize": ('f = Resize<mode="nearest">(da, , twice)', "1,6,20,24"),
    "Concat": ("f = Concat<axis=1>(da, db)", "1,12,10,12"),
    "Transpose": ("f = Transpose<perm=[0,2,3,1]>(da)", "1,10,12,6"),
}


def _group(operator: str) -> WrittenFunction:
    body, result = BODIES[operator]
    reads_two = "db" in body
    inputs = f"uint8[{_SHAPE}] a" + (f", uint8[{_SHAPE}] b" if reads_two else "")
    second = " db = DequantizeLinear(b, sb, zb)" if reads_two else ""
    return written(
        f"g ({inputs}) => (uint8[{result}] y)"
        f" {{da = DequantizeLinear(a, sa, za){second} {body} y = QuantizeLinear(f, sy, zy)}}",
        {name: array for name, array in _NUMBERS.items() if name in f"{second} {body} sa za sy zy"},
    )


@pytest.mark.parametrize("operator", BODIES)
def test_integers_are_those_of_the_reference(operator: str, kernels: HostKernels) -> None:
    what = _group(operator)
    draw = np.random.default_rng(3)
    feeds = {spec.name: draw.integers(0, 256, spec.static_shape).astype(np.uint8) for spec in what.function.inputs}
    [right] = what.expected(feeds)
    assert np.unique(right).size > 4, "a result that tells something"
    for artifact in kernels.lowered(what):
        [found] = kernels.run(what, artifact, feeds)
        steps = np.abs(found.astype(int) - right.astype(int))
        assert steps.max() <= 1, "the quotient may round to the other side of a half"
        assert np.count_nonzero(steps) <= steps.size / 100


def test_nothing_of_a_chain_but_integers_is_written() -> None:
    group = group_of(_group("Add and Relu").function, 64, 2)
    assert [stage.role for stage in group.stages] == ["output"]
    assert {place.kind.bits for place in group.places} == {8}


def test_two_quantised_operators_are_joined_and_none_is_split() -> None:
    what = written(
        "g (uint8[1,6,10,12] a, uint8[1,6,10,12] b) => (uint8[1,6,10,12] y)"
        " {da = DequantizeLinear(a, sa, za) db = DequantizeLinear(b, sb, zb) sum = Add(da, db)"
        " q = QuantizeLinear(sum, sy, zy) dq = DequantizeLinear(q, sy, zy) f = HardSwish(dq)"
        " y = QuantizeLinear(f, sy, zy)}",
        {name: array for name, array in _NUMBERS.items() if name != "twice"},
    )
    graph = DataflowGraph(what.function.model)
    target = Target(toolchain="halide", fingerprint="test", joins=Joins.NATIVE)
    found = propose(target_rule(Toolchain("halide", plugin), target, {}), graph, CandidateBounds.preset("default"))
    assert sorted(each.sub_graph.nodes.bit_count() for each in found.candidates) == [3, 4, 7]
