"""BERT base of 12 layers, as the encoder of `bert_base_6` twice.

It is no model of the suite: nothing in it is unlike those 6 layers, and it takes twice as long.
"""

from __future__ import annotations

import onnx

from benchmarks.models.entry import Entry
from benchmarks.models.exported import load
from benchmarks.models.pytorch import bert_inputs

_ENCODER = "/model/encoder/"
_LOWER = "lower/"
"""Prefix of the names of nodes, values and matrices in the first six layers."""


def bert_base_12() -> onnx.ModelProto:
    """Make the skeleton: the encoder of `bert_base_6` is put before itself, with matrices of its own."""
    model = load("bert_base_6")
    graph = model.graph
    first = next(number for number, node in enumerate(graph.node) if node.name.startswith(_ENCODER))
    encoder = [node for node in graph.node if node.name.startswith(_ENCODER)]
    made = {name for node in encoder for name in node.output}
    matrices = [each for each in graph.initializer if each.name.startswith("onnx::MatMul_") and len(each.dims) == 2]
    copied = made | {each.name for each in matrices if any(each.name in node.input for node in encoder)}
    lower = [_renamed(node, copied) for node in encoder]
    embedded, encoded = encoder[0].input[0], encoder[-1].output[0]
    for node in encoder:
        for place, name in enumerate(node.input):
            if name == embedded:
                node.input[place] = _LOWER + encoded
    graph.initializer.extend(
        onnx.TensorProto(name=_LOWER + each.name, data_type=each.data_type, dims=each.dims)
        for each in matrices
        if each.name in copied
    )
    nodes = [*graph.node[:first], *lower, *graph.node[first:]]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.name = "bert_base_12"
    return model


def _renamed(node: onnx.NodeProto, copied: set[str]) -> onnx.NodeProto:
    """Return a copy of a node under another name, which reads and makes the copies of some values."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.name = _LOWER + node.name
    for names in (copy.input, copy.output):
        for place, name in enumerate(names):
            if name in copied:
                names[place] = _LOWER + name
    return copy


ENTRY = Entry(
    name="bert_base_12",
    about="BERT base of 12 layers (hidden 768), 128 tokens",
    skeleton=bert_base_12,
    inputs=bert_inputs,
    large=True,
)
