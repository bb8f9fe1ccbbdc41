"""Random small graphs, and random patterns that have a chance to match in them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import onnx_ir

from tests.core.patterns import specs
from tests.core.patterns.oracle import used_several_times
from tests.core.patterns.specs import Spec

OPSET = 18
OPERATORS = {"Relu": 1, "Add": 2, "Mul": 2, "Sub": 2, "Sum": None, "Concat": None, "Clip": 3, "Split": 1}
"""Operand counts; None for any number. Commutative or not, with absent operands, with two outputs."""

MOST_SHARED = 3
"""Parts used several times, for the values of which enumeration tries everything."""

_DTYPES = (onnx_ir.DataType.FLOAT, onnx_ir.DataType.FLOAT, onnx_ir.DataType.INT64)


def random_graph(rng: random.Random) -> onnx_ir.Model:
    """A graph of a few operators on tensors of two dtypes and ranks; what it computes has no meaning."""
    inputs = [_value(rng, f"x{place}") for place in range(2)]
    constants = [
        onnx_ir.val(
            f"c{place}",
            onnx_ir.DataType.FLOAT,
            (1,),
            const_value=onnx_ir.tensor(np.array([place], np.float32), name=f"c{place}"),
        )
        for place in range(2)
    ]
    nodes: list[onnx_ir.Node] = []
    values = [*inputs, *constants]
    for place in range(rng.randint(2, 7)):
        op_type = rng.choice(list(OPERATORS))
        count = OPERATORS[op_type] or rng.randint(1, 3)
        # Mostly recent values, so that graphs are deep; often equal ones, so that they are no trees.
        operands: list[onnx_ir.Value | None] = [
            values[-min(len(values), rng.choice((1, 1, 1, 2, 2, 3, 4, 6)))] for _ in range(count)
        ]
        if op_type == "Clip":
            operands[1:] = rng.choice(([None, operands[2]], [operands[1]], [operands[1], operands[2]], []))
        outputs = [_value(rng, f"{op_type.lower()}{place}_{number}") for number in range(1 + (op_type == "Split"))]
        attributes = {"axis": rng.randint(0, 1)} if op_type in ("Concat", "Split") else {}
        nodes.append(onnx_ir.node(op_type, operands, attributes, outputs=outputs, name=f"{op_type}_{place}"))
        values += outputs
    ends = [v for node in nodes for v in node.outputs if not v.uses() and rng.random() < 0.8] or [nodes[-1].outputs[0]]
    ends += [v for node in nodes for v in node.outputs if v.uses() and rng.random() < 0.2]
    graph = onnx_ir.Graph(inputs, ends, nodes=nodes, initializers=constants, opset_imports={"": OPSET}, name="g")
    return onnx_ir.Model(graph, ir_version=10)


def _value(rng: random.Random, name: str) -> onnx_ir.Value:
    return onnx_ir.val(name, rng.choice(_DTYPES), (2, 3)[: rng.randint(1, 2)])


class PatternMaker:
    """Makes patterns of what a graph looks like around a value, with choices, doubts and mistakes.

    Args:
        rng: Draws everything.
        nodes: The graph's nodes.
    """

    def __init__(self, rng: random.Random, nodes: Sequence[onnx_ir.Node]) -> None:
        self._rng = rng
        self._nodes = nodes
        self._values = list({v: None for node in nodes for v in (*node.inputs, *node.outputs) if v is not None})
        self._made: list[tuple[Spec, onnx_ir.Value | None]] = []
        self._left = 0
        self._reuse = 0.0

    def pattern(self) -> Spec:
        """A pattern of some node's output, in which not more than a few parts are used several times."""
        while True:
            self._made = []
            self._left = self._rng.randint(2, 9)
            self._reuse = self._rng.choice((0.0, 0.2, 0.4))
            value = self._rng.choice(self._rng.choice(self._nodes).outputs)
            draw = self._rng.random()
            if draw < 0.3:
                made = self._skeleton(value, {})
            elif draw < 0.45:
                made = self._far_dominating(value)
            else:
                made = (self._new if draw < 0.55 else self._operator)(value)
            if len(used_several_times(made, excluded_too=True)) <= MOST_SHARED:
                return made

    def _skeleton(self, value: onnx_ir.Value | None, leaves: dict[onnx_ir.Value | None, Spec]) -> Spec:
        """What is there, operand by operand in any order, with one pattern per value at the ends.

        So what a commutative operator's operands are is known only when all of it is.
        """
        self._left -= 1
        node = None if value is None else value.producer()
        if value is None or node is None or self._left <= 0:
            return leaves.setdefault(value, specs.Absent() if value is None else specs.Any())
        operands = list(node.inputs)
        self._rng.shuffle(operands)
        made: Spec = specs.Op((node.op_type,), tuple(self._skeleton(operand, leaves) for operand in operands))
        draw = self._rng.random()
        if draw < 0.15:
            made = specs.And(made, self._skeleton(value, leaves))
        elif draw < 0.3:
            excluded = specs.Non(self._skeleton(self._rng.choice((value, value, *self._values)), leaves))
            made = specs.And(made, self._rng.choice((excluded, specs.Non(excluded))))
        elif draw < 0.4:
            made = specs.UsedBy(made, None, only=True)
        return leaves.setdefault(value, made) if self._rng.random() < 0.2 else made

    def _of(self, value: onnx_ir.Value | None) -> Spec:
        """A pattern of a value, or of another one by mistake, or one made before."""
        rng = self._rng
        shared = sum(1 for _ in self._made)
        if shared and rng.random() < self._reuse:
            fitting = [spec for spec, of in self._made if of is value]
            return rng.choice(fitting) if fitting and rng.random() < 0.8 else rng.choice(self._made)[0]
        if rng.random() < 0.06:
            value = rng.choice([*self._values, None])
        spec = self._new(value)
        self._made.append((spec, value))
        return spec

    def _new(self, value: onnx_ir.Value | None) -> Spec:
        self._left -= 1
        if value is None:
            return self._rng.choice((specs.Absent, specs.Absent, specs.Any))()
        if self._left <= 0:
            return self._leaf(value)
        weights = {
            self._leaf: 2,
            self._operator: 8,
            self._choice: 2,
            self._both: 1,
            self._excluding: 2,
            self._named: 1,
            self._typed: 1,
            self._used: 4,
            self._dominating: 3,
            self._optional: 1,
        }
        [make] = self._rng.choices(list(weights), list(weights.values()))
        return make(value)

    def _leaf(self, value: onnx_ir.Value) -> Spec:
        rng = self._rng
        if rng.random() < 0.5:
            return specs.Any()
        if value.const_value is not None:
            return specs.Const(rng.choice((None, None, 0.0, 1.0)))
        producer = value.producer()
        if producer is None:
            return specs.Given(rng.choice((None, None, "x0", "x1")))
        return specs.Op((producer.op_type,))

    def _operator(self, value: onnx_ir.Value) -> Spec:
        rng, node = self._rng, value.producer()
        if node is None:
            return self._leaf(value)
        types = rng.choice(((node.op_type,), (node.op_type,), (rng.choice(list(OPERATORS)), node.op_type), ()))
        operands = list(node.inputs)
        while operands and operands[-1] is None and rng.random() < 0.7:
            operands.pop()
        rest, fixed = None, len(operands)
        if rng.random() < 0.3:
            fixed = rng.randint(0, len(operands))
            rest = specs.Rest()
            if rng.random() < 0.7:
                each = self._each(operands[fixed] if fixed < len(operands) else None)
                rest = specs.Rest(each, rng.choice((0, 0, 0, 1)), rng.choice((None, None, 1, 2)))
        order = list(range(fixed))
        if rng.random() < 0.4:
            rng.shuffle(order)  # right where the operator is commutative
        patterns = tuple(self._of(operands[place]) for place in order)
        if patterns and rng.random() < 0.15:
            first, *others = patterns
            operator = specs.Op(types, tuple(others), rest) if rng.random() < 0.7 else specs.Op(types)
            return specs.Chain(first, operator, only=rng.random() < 0.6)
        return specs.Op(
            types,
            patterns,
            rest,
            axis=rng.randint(0, 1) if rng.random() < 0.15 else None,
            output=node.outputs.index(value) if rng.random() < 0.2 else rng.choice((None, None, None, 0)),
            any_order=rng.choice((None, None, None, None, None, True, False)),
            versions=rng.choice(
                ((None, None),) * 6 + ((OPSET, None), (None, OPSET), (OPSET + 1, None), (1, OPSET - 1))
            ),
        )

    def _each(self, value: onnx_ir.Value | None) -> specs.Each:
        """Something repeated; perhaps with a part that all places and the rest share."""
        body = self._new(value)
        if self._rng.random() < 0.4:
            inside = [spec for spec, _ in self._made] or [body]
            return specs.Each(body, frozenset(self._rng.sample(inside, 1)))
        return specs.Each(body)

    def _choice(self, value: onnx_ir.Value) -> Spec:
        choices = [self._of(value), self._of(self._rng.choice((value, self._rng.choice(self._values))))]
        self._rng.shuffle(choices)
        return specs.Or(*choices)

    def _optional(self, value: onnx_ir.Value) -> Spec:
        node = value.producer()
        if node is None or node.inputs[0] is None or len(node.inputs) > 1 or self._rng.random() < 0.4:
            return specs.Optional(self._of(value), ("Relu", "Sub"))
        return specs.Optional(self._of(node.inputs[0]), (node.op_type,))

    def _both(self, value: onnx_ir.Value) -> Spec:
        return specs.And(self._of(value), self._of(value))

    def _excluding(self, value: onnx_ir.Value) -> Spec:
        other = self._rng.choice(self._values)
        inner: Spec = specs.Non(self._of(self._rng.choice((other, other, value))))
        if self._rng.random() < 0.2:
            inner = specs.Non(specs.Non(self._of(value)))
        return specs.And(*self._rng.sample((self._of(value), inner), 2)) if self._rng.random() < 0.6 else inner

    def _named(self, value: onnx_ir.Value) -> Spec:
        return specs.Named(self._of(value), self._rng.choice("ab"))

    def _typed(self, value: onnx_ir.Value) -> Spec:
        rng = self._rng
        assert value.dtype is not None
        assert value.shape is not None
        shapes = (None, (2,), (2, 3), (None, 3))
        return specs.Typed(
            self._of(value),
            rng.choice((None, value.dtype.name, "FLOAT")),
            rng.choice((None, len(value.shape), 1)),
            rng.choice(shapes) if rng.random() < 0.3 else None,
        )

    def _used(self, value: onnx_ir.Value) -> Spec:
        users = [use.node for use in value.uses()]
        if not users or self._rng.random() < 0.3:
            return specs.UsedBy(self._of(value), None, only=True)
        using = self._rng.choice(self._rng.choice(users).outputs)
        return specs.UsedBy(self._of(value), self._of(using), only=self._rng.random() < 0.5)

    def _far_dominating(self, value: onnx_ir.Value) -> Spec:
        """A dominator of a value that is told exactly and may be far away, with anything between."""
        earlier = self._earlier(value, 4)
        made = earlier.producer()
        parent = specs.Given(earlier.name) if made is None else specs.Op((made.op_type,), output=earlier.index())
        return specs.Dominates(parent, specs.Each(specs.Any()), self._operator(value))

    def _earlier(self, value: onnx_ir.Value, steps: int) -> onnx_ir.Value:
        for _ in range(self._rng.randint(1, steps)):
            node = value.producer()
            before = [] if node is None else [v for v in node.inputs if v is not None]
            if before:
                value = self._rng.choice(before)
        return value

    def _dominating(self, value: onnx_ir.Value) -> Spec:
        earlier = self._earlier(value, 3)
        between = [v for v in self._values if v.producer() is not None]
        path = specs.Each(specs.Any()) if self._rng.random() < 0.5 else self._each(self._rng.choice(between))
        return specs.Dominates(self._of(earlier), path, self._of(value))
