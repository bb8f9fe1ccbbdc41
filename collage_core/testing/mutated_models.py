"""Models with something wrong in their structure: what a broken exporter, an editor or a bad download leaves behind."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import onnx_ir

_OPERATORS: Final = (
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
_DOMAINS: Final = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "nowhere", "collage")
_INTEGERS: Final = (0, 1, -1, 2, -2, 3, 7, 100, 2**31, -(2**31), 2**62, -(2**63))
_EXTENTS: Final = (0, 1, 2, 3, 5, 16, 1000, 2**31, 2**50, -1)
_FLOATS: Final = (0.0, 1.0, -1.0, 1e38, float("inf"), float("nan"))
_ELEMENT_TYPES: Final = tuple(range(30))
"""Of ONNX's `TensorProto.DataType`, those that do not exist included."""


@dataclasses.dataclass(frozen=True, slots=True)
class Mutant:
    """A model that was tampered with.

    Attributes:
        data: What should be a serialised `ModelProto`.
        steps: What was done to it.
    """

    data: bytes
    steps: tuple[str, ...]


def mutated(model: onnx_ir.Model | Any, rng: random.Random, steps: int | None = None) -> Mutant:
    """Changes a model's structure at random; the model given is left as it is.

    Most results are not valid, some are not even messages; some are, and compute something else.

    Args:
        model: A model, or an `onnx.ModelProto`.
        rng: What draws: the same state gives the same mutant.
        steps: How many changes; one to four if None.
    """
    proto: Any = onnx_ir.to_proto(model) if isinstance(model, onnx_ir.Model) else type(model)()
    if not isinstance(model, onnx_ir.Model):
        proto.CopyFrom(model)
    surgery = _Surgery(proto, rng)
    done = []
    for _ in range(steps or rng.choice((1, 1, 1, 2, 2, 3, 4))):
        name = rng.choice(_NAMES)
        try:
            _CHANGES[name](surgery)
        except (IndexError, ValueError, TypeError) as error:  # nothing there to change, or protobuf itself refuses
            done.append(f"not {name}: {type(error).__name__}")
            continue
        done.append(name)
    data = bytes(proto.SerializePartialToString())
    if rng.random() < _SHARE_OF_BAD_BYTES:
        kind = rng.choice(sorted(_BYTE_CHANGES))
        data = _BYTE_CHANGES[kind](data, rng)
        done.append(kind)
    return Mutant(data, tuple(done))


_SHARE_OF_BAD_BYTES: Final = 0.08


class _Surgery:
    """One model under the knife: picks places in it at random. Raises IndexError where there is none."""

    def __init__(self, proto: Any, rng: random.Random) -> None:
        self.proto = proto
        self.rng = rng

    def pick(self, items: Sequence[Any]) -> Any:
        return self.rng.choice(items)

    def graph(self) -> Any:
        """The main graph, or a body in it."""
        graphs = list(_graphs(self.proto.graph))
        return graphs[0] if self.rng.random() < 0.5 else self.pick(graphs)

    def node(self) -> Any:
        return self.pick(self.graph().node)

    def attribute(self) -> Any:
        return self.pick([each for node in self.graph().node for each in node.attribute])

    def value_info(self) -> Any:
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
        return self.rng.randrange(len(items)) if items else _nowhere()


def _graphs(graph: Any) -> Iterator[Any]:
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g)


def _nowhere() -> int:
    raise IndexError("there is nothing to choose from")


# Nodes


def _drop_node(s: _Surgery) -> None:
    nodes = s.graph().node
    del nodes[s.place(nodes)]


def _duplicate_node(s: _Surgery) -> None:
    nodes = s.graph().node
    nodes.add().CopyFrom(s.pick(nodes))


def _move_node(s: _Surgery) -> None:
    nodes = s.graph().node
    place = s.place(nodes)
    moved = type(nodes[place])()
    moved.CopyFrom(nodes[place])
    del nodes[place]
    nodes.insert(s.rng.randrange(len(nodes) + 1), moved)


def _rename_node(s: _Surgery) -> None:
    s.node().name = s.pick(["", "same", *(node.name for node in s.graph().node)])


def _other_operator(s: _Surgery) -> None:
    s.node().op_type = s.pick([*_OPERATORS, "", *(node.op_type for node in s.graph().node)])


def _other_domain(s: _Surgery) -> None:
    s.node().domain = s.pick(_DOMAINS)


def _rewire_input(s: _Surgery) -> None:
    inputs = s.node().input
    inputs[s.place(inputs)] = s.pick(s.names())


def _drop_input(s: _Surgery) -> None:
    inputs = s.node().input
    del inputs[s.place(inputs)]


def _add_input(s: _Surgery) -> None:
    s.node().input.append(s.pick(s.names()))


def _rewire_output(s: _Surgery) -> None:
    outputs = s.node().output
    outputs[s.place(outputs)] = s.pick(s.names())


def _add_output(s: _Surgery) -> None:
    s.node().output.append(s.pick([*s.names(), "another"]))


def _drop_output(s: _Surgery) -> None:
    outputs = s.node().output
    del outputs[s.place(outputs)]


# Attributes


def _drop_attribute(s: _Surgery) -> None:
    attributes = s.node().attribute
    del attributes[s.place(attributes)]


def _rename_attribute(s: _Surgery) -> None:
    s.attribute().name = s.pick(["", "axis", "to", "perm", "value", "nonsense"])


def _other_attribute_type(s: _Surgery) -> None:
    s.attribute().type = s.rng.randrange(15)


def _other_attribute_value(s: _Surgery) -> None:
    attribute = s.attribute()
    if attribute.ints:
        attribute.ints[s.place(attribute.ints)] = s.pick(_INTEGERS)
    elif attribute.HasField("i"):
        attribute.i = s.pick(_INTEGERS)
    elif attribute.HasField("f"):
        attribute.f = s.pick(_FLOATS)
    elif attribute.HasField("s"):
        attribute.s = s.pick([b"", b"SAME_UPPER", b"nonsense", b"\xff\xfe"])
    elif attribute.HasField("t"):
        _spoil_tensor(s, attribute.t)
    else:
        raise IndexError


def _other_attribute_length(s: _Surgery) -> None:
    ints = s.attribute().ints
    if s.rng.random() < 0.5:
        del ints[s.place(ints)]
    else:
        ints.append(s.pick(_INTEGERS))


def _reference_attribute(s: _Surgery) -> None:
    s.attribute().ref_attr_name = "given"


def _add_attribute(s: _Surgery) -> None:
    attribute = s.node().attribute.add(name=s.pick(["axis", "axes", "to", "perm", "keepdims", "nonsense"]))
    attribute.type, attribute.i = 2, s.pick(_INTEGERS)  # an integer


# Values


def _other_element_type(s: _Surgery) -> None:
    s.value_info().type.tensor_type.elem_type = s.pick(_ELEMENT_TYPES)


def _other_extent(s: _Surgery) -> None:
    dims = s.value_info().type.tensor_type.shape.dim
    s.pick(dims).dim_value = s.pick(_EXTENTS)


def _symbol_extent(s: _Surgery) -> None:
    s.pick(s.value_info().type.tensor_type.shape.dim).dim_param = s.pick(["N", "", "x + 1", "batch"])


def _other_rank(s: _Surgery) -> None:
    dims = s.value_info().type.tensor_type.shape.dim
    if s.rng.random() < 0.5:
        del dims[s.place(dims)]
    else:
        dims.add().dim_value = s.pick(_EXTENTS)


def _forget_shape(s: _Surgery) -> None:
    s.value_info().type.tensor_type.ClearField("shape")


def _forget_type(s: _Surgery) -> None:
    s.value_info().ClearField("type")


def _other_kind(s: _Surgery) -> None:
    kind = s.value_info().type
    element = kind.tensor_type.elem_type or 1
    inner = kind.sequence_type if s.rng.random() < 0.5 else kind.optional_type
    inner.elem_type.tensor_type.elem_type = element


def _rename_value(s: _Surgery) -> None:
    s.value_info().name = s.pick(s.names())


def _contradict_value(s: _Surgery) -> None:
    info = s.graph().value_info.add(name=s.pick(s.names()))
    info.type.tensor_type.elem_type = s.pick(_ELEMENT_TYPES)
    for _ in range(s.rng.randrange(4)):
        info.type.tensor_type.shape.dim.add().dim_value = s.pick(_EXTENTS)


def _drop_input_or_output(s: _Surgery) -> None:
    graph = s.graph()
    values = graph.output if s.rng.random() < 0.5 else graph.input
    del values[s.place(values)]


def _duplicate_input_or_output(s: _Surgery) -> None:
    graph = s.graph()
    values = graph.output if s.rng.random() < 0.5 else graph.input
    values.add().CopyFrom(s.pick(values))


# Weights


def _drop_initializer(s: _Surgery) -> None:
    tensors = s.graph().initializer
    del tensors[s.place(tensors)]


def _duplicate_initializer(s: _Surgery) -> None:
    tensors = s.graph().initializer
    tensors.add().CopyFrom(s.pick(tensors))


def _rename_initializer(s: _Surgery) -> None:
    s.pick(s.graph().initializer).name = s.pick(s.names())


def _spoil_initializer(s: _Surgery) -> None:
    _spoil_tensor(s, s.pick(s.graph().initializer))


def _initializer_as_input(s: _Surgery) -> None:
    tensor = s.pick(s.graph().initializer)
    info = s.graph().input.add(name=tensor.name)
    info.type.tensor_type.elem_type = tensor.data_type
    for extent in tensor.dims:
        info.type.tensor_type.shape.dim.add().dim_value = extent


def _spoil_tensor(s: _Surgery, tensor: Any) -> None:
    what = s.rng.randrange(5)
    if what == 0:
        tensor.data_type = s.pick(_ELEMENT_TYPES)
    elif what == 1 and tensor.dims:
        tensor.dims[s.place(tensor.dims)] = s.pick(_EXTENTS)
    elif what == 2:
        tensor.dims.append(s.pick(_EXTENTS))
    elif what == 3 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: s.rng.randrange(len(tensor.raw_data))]
    else:
        tensor.ClearField("raw_data")
        tensor.data_location = 1  # external
        tensor.external_data.add(key="location", value=s.pick(["weights.bin", "../../etc/passwd", "/dev/zero", ""]))


# The model


def _other_opset(s: _Surgery) -> None:
    imports = s.proto.opset_import
    if imports and s.rng.random() < 0.7:
        s.pick(imports).version = s.pick((0, 1, 5, 7, 9, 11, 13, 18, 21, 22, 25, 26, 99, -1, 2**40))
    elif imports and s.rng.random() < 0.5:
        del imports[s.place(imports)]
    else:
        imports.add(domain=s.pick(_DOMAINS), version=s.pick((1, 13, 21)))


def _other_ir_version(s: _Surgery) -> None:
    s.proto.ir_version = s.pick((0, 1, 3, 7, 10, 99, -1))


def _function(s: _Surgery) -> None:
    """A function whose body is a node of the model, called in its place; sometimes it calls itself."""
    node = s.node()
    function = s.proto.functions.add(name="Made", domain="made")
    function.input.extend(dict.fromkeys(name for name in node.input if name))
    function.output.extend(dict.fromkeys(name for name in node.output if name))
    function.opset_import.add(domain="", version=s.pick((13, 21)))
    function.node.add().CopyFrom(node)
    if s.rng.random() < 0.3:
        function.node[0].op_type, function.node[0].domain = "Made", "made"
    if s.rng.random() < 0.3:
        function.metadata_props.add(key="collage.primitive", value="1")
    if s.rng.random() < 0.7:
        s.proto.opset_import.add(domain="made", version=1)
    node.op_type, node.domain = "Made", "made"


_CHANGES: Final[Mapping[str, Callable[[_Surgery], None]]] = {
    change.__name__[1:].replace("_", " "): change
    for change in (
        _drop_node,
        _duplicate_node,
        _move_node,
        _rename_node,
        _other_operator,
        _other_domain,
        _rewire_input,
        _drop_input,
        _add_input,
        _rewire_output,
        _add_output,
        _drop_output,
        _drop_attribute,
        _rename_attribute,
        _other_attribute_type,
        _other_attribute_value,
        _other_attribute_length,
        _reference_attribute,
        _add_attribute,
        _other_element_type,
        _other_extent,
        _symbol_extent,
        _other_rank,
        _forget_shape,
        _forget_type,
        _other_kind,
        _rename_value,
        _contradict_value,
        _drop_input_or_output,
        _duplicate_input_or_output,
        _drop_initializer,
        _duplicate_initializer,
        _rename_initializer,
        _spoil_initializer,
        _initializer_as_input,
        _other_opset,
        _other_ir_version,
        _function,
    )
}
_NAMES: Final = sorted(_CHANGES)


def _truncated(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _flipped(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8)) if changed else 0):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _spliced(data: bytes, rng: random.Random) -> bytes:
    start, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:end] + data[start:]


_BYTE_CHANGES: Final[Mapping[str, Callable[[bytes, random.Random], bytes]]] = {
    "truncated": _truncated,
    "flipped": _flipped,
    "spliced": _spliced,
}
