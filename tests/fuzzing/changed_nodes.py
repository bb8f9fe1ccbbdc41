"""Nodes and attributes that are lost, doubled, moved, or not what they were."""

from __future__ import annotations

from typing import Final

from tests.fuzzing.model_surgery import DOMAINS, FLOATS, INTEGERS, OPERATORS, Change, Surgery, spoil_tensor


def _drop_node(s: Surgery) -> None:
    nodes = s.graph().node
    del nodes[s.place(nodes)]


def _duplicate_node(s: Surgery) -> None:
    nodes = s.graph().node
    nodes.add().CopyFrom(s.pick(nodes))


def _move_node(s: Surgery) -> None:
    nodes = s.graph().node
    place = s.place(nodes)
    moved = type(nodes[place])()
    moved.CopyFrom(nodes[place])
    del nodes[place]
    nodes.insert(s.rng.randrange(len(nodes) + 1), moved)


def _rename_node(s: Surgery) -> None:
    s.node().name = s.pick(["", "same", *(node.name for node in s.graph().node)])


def _other_operator(s: Surgery) -> None:
    s.node().op_type = s.pick([*OPERATORS, "", *(node.op_type for node in s.graph().node)])


def _other_domain(s: Surgery) -> None:
    s.node().domain = s.pick(DOMAINS)


def _rewire_input(s: Surgery) -> None:
    inputs = s.node().input
    inputs[s.place(inputs)] = s.pick(s.names())


def _drop_input(s: Surgery) -> None:
    inputs = s.node().input
    del inputs[s.place(inputs)]


def _add_input(s: Surgery) -> None:
    s.node().input.append(s.pick(s.names()))


def _rewire_output(s: Surgery) -> None:
    outputs = s.node().output
    outputs[s.place(outputs)] = s.pick(s.names())


def _add_output(s: Surgery) -> None:
    s.node().output.append(s.pick([*s.names(), "another"]))


def _drop_output(s: Surgery) -> None:
    outputs = s.node().output
    del outputs[s.place(outputs)]


def _drop_attribute(s: Surgery) -> None:
    attributes = s.node().attribute
    del attributes[s.place(attributes)]


def _rename_attribute(s: Surgery) -> None:
    s.attribute().name = s.pick(["", "axis", "to", "perm", "value", "nonsense"])


def _other_attribute_type(s: Surgery) -> None:
    s.attribute().type = s.rng.randrange(15)


def _other_attribute_value(s: Surgery) -> None:
    attribute = s.attribute()
    if attribute.ints:
        attribute.ints[s.place(attribute.ints)] = s.pick(INTEGERS)
    elif attribute.HasField("i"):
        attribute.i = s.pick(INTEGERS)
    elif attribute.HasField("f"):
        attribute.f = s.pick(FLOATS)
    elif attribute.HasField("s"):
        attribute.s = s.pick([b"", b"SAME_UPPER", b"nonsense", b"\xff\xfe"])
    elif attribute.HasField("t"):
        spoil_tensor(s, attribute.t)
    else:
        raise IndexError


def _other_attribute_length(s: Surgery) -> None:
    ints = s.attribute().ints
    if s.rng.random() < 0.5:
        del ints[s.place(ints)]
    else:
        ints.append(s.pick(INTEGERS))


def _reference_attribute(s: Surgery) -> None:
    s.attribute().ref_attr_name = "given"


def _add_attribute(s: Surgery) -> None:
    attribute = s.node().attribute.add(name=s.pick(["axis", "axes", "to", "perm", "keepdims", "nonsense"]))
    attribute.type, attribute.i = 2, s.pick(INTEGERS)  # an integer


CHANGES: Final[tuple[Change, ...]] = (
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
)
