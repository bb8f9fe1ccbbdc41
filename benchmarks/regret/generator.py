"""Graft heads and tails of real deployments onto bodies of the suite, by seed.

A seed names one model for good: the tail goes round by the seed, so that forty models have each of them, and head,
body and sizes are drawn. A graph of n operators in a row has n (n + 1) / 2 regions for each toolchain that takes any;
so that all of them can be measured, head, body and tail have at most `MOST_OPERATORS` together.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
from collections.abc import Iterable
from pathlib import Path

import onnx

from benchmarks.models.__main__ import write_model
from benchmarks.models.entry import Inputs
from benchmarks.models.graph import GraphWriter
from benchmarks.models.weights import fill
from benchmarks.regret import image_tails, sequence_tails
from benchmarks.regret.bodies import BODIES
from benchmarks.regret.feature import Body, Head, Tail
from benchmarks.regret.heads import HEADS

COUNT = 40
MOST_OPERATORS = 11
TAILS = (*image_tails.TAILS, *sequence_tails.TAILS)
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators that need no kernel."""
_DRAW = 5293
"""Part of every seed: it was chosen so that all heads and most bodies occur."""
_RAW = 0.6
"""Share of models with a head that takes raw inputs, among those where one fits."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Grafted:
    """One generated model.

    Attributes:
        seed: Seed of its parts, sizes, weights and inputs.
        head: How it takes its input.
        body: What computes its features.
        tail: What it answers.
    """

    seed: int
    head: Head
    body: Body
    tail: Tail

    @property
    def name(self) -> str:
        """Name by seed and parts."""
        parts = (f"r{self.seed:02}", self.head.name, self.body.name, self.tail.name)
        return "-".join(part for part in parts if part)

    def skeleton(self) -> onnx.ModelProto:
        """Build the model with declared weights."""
        draw = random.Random(f"{_DRAW} sizes {self.seed}")
        g = GraphWriter(self.name)
        feature = self.body.build(g, self.head.build(g, draw), draw)
        return g.model(*self.tail.build(g, feature, draw))

    def build(self) -> onnx.ModelProto:
        """Build the model with weights drawn from its seed."""
        return fill(self.skeleton(), self.seed)

    def inputs(self, model: onnx.ModelProto) -> Inputs:
        """Generate the inputs of the built model by name, drawn from its seed."""
        return self.head.inputs(model, self.seed)

    def write(self, folder: Path) -> Path:
        """Write the model, and its inputs beside it; return the path of the model."""
        model = self.build()
        path = folder / f"{self.name}.onnx"
        write_model(path, model, self.inputs(model))
        return path


def grafted(seed: int) -> Grafted:
    """Draw the model of a seed."""
    tail = TAILS[seed % len(TAILS)]
    draw = random.Random(f"{_DRAW} parts {seed}")
    fitting = [
        (head, body)
        for head, body in itertools.product(HEADS, BODIES)
        if head.fits(body) and body.makes in tail.takes
        if head.operators + body.operators + tail.operators <= MOST_OPERATORS
    ]
    raw = [pair for pair in fitting if pair[0].name]
    head, body = draw.choice(raw if raw and draw.random() < _RAW else [pair for pair in fitting if pair not in raw])
    return Grafted(seed=seed, head=head, body=body, tail=tail)


def operators(nodes: Iterable[onnx.NodeProto]) -> int:
    """Count the nodes that need a kernel."""
    return sum(node.op_type not in _VIEWS for node in nodes)


def all_grafted(count: int = COUNT) -> dict[str, Grafted]:
    """Draw the models of the first seeds, by name."""
    models = [grafted(seed) for seed in range(count)]
    return {model.name: model for model in models}
