"""Models in the QDQ form, small and random, and what a quantised group is, said without any care for speed."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterable

import numpy as np
import onnx_ir

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.values.content import constant_of
from collage_testing import GraphBuilder

SIDE = 4


class QdqBuilder(GraphBuilder):
    """Writes quantised operators."""

    def scales(self) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        """A scale and a zero point of their own."""
        number = self._numbered("by")
        return self.constant(f"{number}_scale", np.float32(0.1)), self.constant(f"{number}_zero", np.int8(3))

    def q(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Rounded to int8."""
        return self.op("QuantizeLinear", value, *self.scales())

    def dq(self, value: onnx_ir.Value) -> onnx_ir.Value:
        """Made real numbers."""
        return self.op("DequantizeLinear", value, *self.scales())

    def int8(self, name: str, *shape: int) -> onnx_ir.Value:
        """A constant of few bits."""
        elements = np.random.default_rng(len(name)).integers(-9, 9, shape)
        return self.constant(name, elements.astype(np.int8))

    def narrow(self, name: str, *shape: int) -> onnx_ir.Value:
        """An input of few bits."""
        return self.input(name, *shape, dtype=onnx_ir.DataType.INT8)


def random_qdq_model(rng: random.Random, operators: int) -> onnx_ir.Model:
    """Any wiring of conversions and operators between them, shared ones, views and weights included."""
    g = QdqBuilder("random")
    floats = [g.input("x", SIDE, SIDE), g.input("z", SIDE, SIDE)]
    narrows = [g.q(floats[0]), g.narrow("n", SIDE, SIDE)]
    flat, square = g.ints(SIDE * SIDE), g.ints(SIDE, SIDE)
    dense = g.weight("w", SIDE, SIDE)

    def pick(values: list[onnx_ir.Value]) -> onnx_ir.Value:
        return rng.choice(values[-3:] if rng.random() < 0.7 else values)

    for number in range(operators):
        kind = rng.randrange(11)
        if kind <= 1:
            narrows.append(g.q(pick(floats)))
        elif kind <= 3:
            floats.append(g.dq(pick(narrows)))
        elif kind == 4:
            floats.append(g.op("MatMul", pick(floats), g.dq(g.int8(f"w{number}", SIDE, SIDE))))
        elif kind == 5:
            weight = g.dq(g.q(dense)) if rng.random() < 0.5 else g.dq(g.int8(f"w{number}", SIDE, SIDE))
            floats.append(g.op("MatMul", pick(floats), g.op("Transpose", weight, perm=[1, 0])))
        elif kind == 6:
            floats.append(g.op(rng.choice(["Add", "Mul"]), pick(floats), pick(floats)))
        elif kind == 7:
            floats.append(g.op(rng.choice(["Relu", "Sigmoid"]), pick(floats)))
        elif kind == 8:
            floats.append(g.op(rng.choice(["Softmax", "Transpose"]), pick(floats)))
        elif kind == 9:
            floats.append(g.op("Reshape", g.op("Reshape", pick(floats), flat), square))
        else:
            narrows.append(g.op("Transpose", pick(narrows), perm=[1, 0]))
    made = [*floats[2:], *narrows[2:]] or [narrows[0]]
    last = [(floats if len(floats) > 2 else narrows)[-1], narrows[-1]]
    outputs = {*rng.sample(made, k=min(2, len(made))), *(value for value in last if value.producer() is not None)}
    return g.model(*(value for value in made + narrows[:1] if value in outputs))


def brute_groups(graph: DataflowGraph) -> set[int]:
    """The quantised groups by their definition: every path is walked, and circles are found by trying all pairs."""
    nodes = graph.nodes
    size = len(nodes)
    is_q = [node.op_type == "QuantizeLinear" for node in nodes]
    is_dq = [node.op_type == "DequantizeLinear" for node in nodes]

    def passes(index: int) -> bool:
        return (graph.kinds[index].is_epilogue or graph.is_host(index)) and not is_q[index] and not is_dq[index]

    def above(index: int) -> list[int]:
        return [other for other in range(size) if graph.predecessors[index] >> other & 1]

    def below(index: int) -> list[int]:
        return [other for other in range(size) if graph.successors[index] >> other & 1]

    @functools.cache
    def dequantised(index: int) -> bool:
        return is_dq[index] or (graph.is_host(index) and any(dequantised(other) for other in above(index)))

    @functools.cache
    def quantised(index: int) -> bool:
        if is_q[index]:
            return False
        return any(dequantised(o) for o in above(index)) or (passes(index) and any(quantised(o) for o in above(index)))

    @functools.cache
    def ends_narrow(index: int) -> bool:
        readers = below(index)
        if not readers or graph.outputs_mask >> index & 1:
            return False
        return all(is_q[other] or (passes(other) and ends_narrow(other)) for other in readers)

    @functools.cache
    def of_weights(index: int) -> bool:
        if any(
            value is not None and constant_of(value) is None and graph.producer(value) is None
            for value in graph.operands[index]
        ):
            return False
        if not above(index):
            return is_q[index] or is_dq[index]
        return all(of_weights(other) for other in above(index))

    sets = [frozenset([index]) for index in range(size)]
    for index in range(size):
        if dequantised(index) or (quantised(index) and ends_narrow(index)) or of_weights(index):
            for reader in below(index):
                sets = _joined(sets, index, reader)
    units = [unit for each in sets if (unit := frozenset(i for i in each if not graph.is_host(i)))]
    while True:
        reaches = {unit: _reached(graph, units, unit) for unit in units}
        circle = next(
            (
                (one, other)
                for one, other in itertools.combinations(units, 2)
                if other in reaches[one] and one in reaches[other]
            ),
            None,
        )
        if circle is None:
            break
        one, other = circle
        units = [unit for unit in units if unit not in circle] + [one | other]
    return {sum(1 << index for index in unit) for unit in units if len(unit) > 1}


def _joined(sets: list[frozenset[int]], one: int, other: int) -> list[frozenset[int]]:
    touched = [each for each in sets if one in each or other in each]
    return [each for each in sets if each not in touched] + [frozenset().union(*touched)]


def _reached(graph: DataflowGraph, units: Iterable[frozenset[int]], start: frozenset[int]) -> set[frozenset[int]]:
    """Sets of nodes that wait for one of them, if each is one kernel."""
    found: set[frozenset[int]] = set()
    waiting = [start]
    while waiting:
        unit = waiting.pop()
        after = {
            reader for index in unit for reader in range(len(graph)) if graph.kernel_successors[index] >> reader & 1
        }
        for other in units:
            if other & after and other != unit and other not in found:
                found.add(other)
                waiting.append(other)
    return found
