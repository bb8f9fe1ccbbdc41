"""A model as a message, open on the table: places in it picked at random, and what may be put there."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

OPERATORS: Final = (
    "Add",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Gemm",
    "Identity",
    "If",
    "LayerNormalization",
    "Loop",
    "MatMul",
    "MaxPool",
    "NonZero",
    "Pad",
    "QuantizeLinear",
    "Range",
    "ReduceSum",
    "Relu",
    "Reshape",
    "Resize",
    "Scan",
    "SequenceAt",
    "Shape",
    "Slice",
    "Softmax",
    "Split",
    "SplitToSequence",
    "Squeeze",
    "Tile",
    "TopK",
    "Transpose",
    "Unique",
    "Unsqueeze",
    "Where",
    "Nonsense",
)
DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nowhere", "collage")
INTEGERS: Final = (0, 1, -1, 2, -2, 3, 7, 100, 2**31, -(2**31), 2**62, -(2**63))
EXTENTS: Final = (0, 1, 2, 3, 5, 16, 1000, 2**31, 2**50, -1)
FLOATS: Final = (0.0, 1.0, -1.0, 1e38, float("inf"), float("nan"))
ELEMENT_TYPES: Final = tuple(range(30))
"""Of ONNX's `TensorProto.DataType`, those that do not exist included."""


class Surgery:
    """One model under the knife: picks places in it at random. Raises IndexError where there is none.

    Args:
        proto: An `onnx.ModelProto`; it is changed.
        rng: What draws.
    """

    def __init__(self, proto: Any, rng: random.Random) -> None:
        self.proto = proto
        self.rng = rng

    def pick(self, items: Sequence[Any]) -> Any:
        """One of several."""
        return self.rng.choice(items)

    def graph(self) -> Any:
        """The main graph, or a body in it."""
        graphs = list(_graphs(self.proto.graph))
        return graphs[0] if self.rng.random() < 0.5 else self.pick(graphs)

    def node(self) -> Any:
        """A node of some graph."""
        return self.pick(self.graph().node)

    def attribute(self) -> Any:
        """An attribute of a node of some graph."""
        return self.pick([each for node in self.graph().node for each in node.attribute])

    def value_info(self) -> Any:
        """What some graph says of one of its values."""
        graph = self.graph()
        return self.pick([*graph.input, *graph.output, *graph.value_info])

    def names(self) -> list[str]:
        """Names of values, those of every graph and some that do not exist."""
        found = ["", "nobody"]
        for graph in (self.proto.graph, self.graph()):
            found += [value.name for value in (*graph.input, *graph.initializer)]
            found += [name for node in graph.node for name in node.output]
        return found

    def place(self, items: Sequence[Any]) -> int:
        """The place of one of several."""
        return self.rng.randrange(len(items)) if items else _nowhere()


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nowhere() -> int:
    raise IndexError("there is nothing to choose from")


def spoil_tensor(s: Surgery, tensor: Any) -> None:
    """Has a tensor say something else than it holds, or lie where nothing is."""
    what = s.rng.randrange(5)
    if what == 0:
        tensor.data_type = s.pick(ELEMENT_TYPES)
    elif what == 1 and tensor.dims:
        tensor.dims[s.place(tensor.dims)] = s.pick(EXTENTS)
    elif what == 2:
        tensor.dims.append(s.pick(EXTENTS))
    elif what == 3 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: s.rng.randrange(len(tensor.raw_data))]
    else:
        tensor.ClearField("raw_data")
        tensor.data_location = 1  # external
        tensor.external_data.add(key="location", value=s.pick(["weights.bin", "../../etc/passwd", "/dev/zero", ""]))


Change: TypeAlias = Callable[[Surgery], None]
"""One thing done to a model; raises `IndexError`, `TypeError` or `ValueError` where it cannot be."""
