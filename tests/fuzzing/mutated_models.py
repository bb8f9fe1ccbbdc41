"""Models with something wrong in their structure: what a broken exporter, an editor or a bad download leaves behind."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import onnx_ir

from tests.fuzzing import changed_nodes, changed_values
from tests.fuzzing.model_surgery import DOMAINS, Change, Surgery


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
    surgery = Surgery(proto, rng)
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


def _other_opset(s: Surgery) -> None:
    imports = s.proto.opset_import
    if imports and s.rng.random() < 0.7:
        s.pick(imports).version = s.pick((0, 1, 5, 7, 9, 11, 13, 18, 21, 22, 25, 26, 99, -1, 2**40))
    elif imports and s.rng.random() < 0.5:
        del imports[s.place(imports)]
    else:
        imports.add(domain=s.pick(DOMAINS), version=s.pick((1, 13, 21)))


def _other_ir_version(s: Surgery) -> None:
    s.proto.ir_version = s.pick((0, 1, 3, 7, 10, 99, -1))


def _function(s: Surgery) -> None:
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


_CHANGES: Final[Mapping[str, Change]] = {
    change.__name__[1:].replace("_", " "): change
    for change in (*changed_nodes.CHANGES, *changed_values.CHANGES, _other_opset, _other_ir_version, _function)
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
