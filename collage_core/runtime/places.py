"""Where every value of an executable lies: inside, in the arena; at the rim, in arrays a caller may give."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from collage_core.contract import Buffer, TensorSpec, ValueKind
from collage_core.errors import FeedError
from collage_core.runtime.arena import ArenaPlan, allocate, plan_arena
from collage_core.runtime.wiring import Wiring, workspace_name

Array = np.ndarray[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rim:
    """Places at the rim of one bound run.

    Attributes:
        roots: Place of each root that is a graph input, or is written straight into a graph output.
        inputs: Place of each graph input, by name.
        outputs: Place of each graph output, by name.
    """

    roots: Mapping[ir.Value, Buffer]
    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]


class Places:
    """The memory of one executable.

    Args:
        wiring: What reads and writes what.
        workspace_bytes: Scratch memory by step name.
    """

    def __init__(self, wiring: Wiring, workspace_bytes: Mapping[str, int]) -> None:
        self._wiring = wiring
        self._inside: dict[ir.Value, Buffer] = {}
        self.plan: ArenaPlan = plan_arena(wiring.blocks(workspace_bytes))
        self._arena = allocate(self.plan.nbytes)
        self._workspaces = {step: self._workspace(step, nbytes) for step, nbytes in workspace_bytes.items() if nbytes}

    def workspace(self, step: str) -> Buffer | None:
        """Scratch memory of a step; None if it needs none."""
        return self._workspaces.get(step)

    def at_rim(self, value: ir.Value, rim: Rim) -> bool:
        """Whether a value's place changes from one bound run to the next."""
        return self._wiring.roots[value] in rim.roots

    def of(self, value: ir.Value, rim: Rim) -> Buffer:
        """The place of a value in one bound run."""
        root = self._wiring.roots[value]
        place = rim.roots.get(root) or self._inside.get(root)
        if place is None:
            place = self._inside[root] = self._make(root)
        return place if root is value else _reshaped(place, self._wiring.specs[value])

    def rim(self, inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> Rim:
        """Places for one bound run.

        Args:
            inputs: What a caller wants inputs to be read from.
            outputs: What a caller wants outputs to be written into.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
        """
        wiring = self._wiring
        named_inputs = {wiring.specs[value].name: value for value in wiring.inputs}
        named_outputs = {wiring.specs[value].name: value for value in wiring.outputs}
        _check_names("input", inputs, named_inputs)
        _check_names("output", outputs, named_outputs)
        _check_overlap(inputs, outputs)
        owners = wiring.owned_by_outputs()
        copied = wiring.copied_outputs()
        roots: dict[ir.Value, Buffer] = {}
        for name, value in named_inputs.items():
            roots[value] = _given_or_new(wiring.specs[value], inputs.get(name))
        places: dict[str, Buffer] = {}
        for name, value in named_outputs.items():
            spec, root, array = wiring.specs[value], wiring.roots[value], outputs.get(name)
            if spec.kind is ValueKind.PLANNED:
                places[name] = _given_or_new(spec, array)
                if value not in copied and owners[root] is value:
                    roots[root] = _reshaped(places[name], wiring.specs[root])
                continue
            if array is not None:
                raise FeedError(name, "its size is not known before it is computed, so it cannot be bound to an array")
            if root not in roots and root.producer() is not None:
                roots[root] = Buffer(spec)
            places[name] = roots.get(root) or self._make(root)
        return Rim(roots=roots, inputs={name: roots[value] for name, value in named_inputs.items()}, outputs=places)

    def _make(self, root: ir.Value) -> Buffer:
        """A place inside: in the arena, or a constant's own memory, or an object slot."""
        spec = self._wiring.specs[root]
        if root.const_value is not None and root.producer() is None:
            return _constant(spec, root.const_value)
        if spec.kind is ValueKind.FOREIGN:
            return Buffer(spec)
        offset = self.plan.offsets[spec.name]
        storage = self._arena[offset : offset + spec.nbytes].view(spec.numpy_dtype)
        return Buffer(spec, storage.reshape(spec.static_shape))

    def _workspace(self, step: str, nbytes: int) -> Buffer:
        name = workspace_name(step)
        offset = self.plan.offsets[name]
        spec = TensorSpec(name=name, dtype=ir.DataType.UINT8, shape=(nbytes,))
        return Buffer(spec, self._arena[offset : offset + nbytes])


def _constant(spec: TensorSpec, tensor: ir.TensorProtocol) -> Buffer:
    if spec.kind is ValueKind.FOREIGN:
        buffer = Buffer(spec)
        array = tensor.numpy()
        if tensor.dtype == ir.DataType.STRING:  # which the IR holds as bytes
            texts = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
            array = np.array(texts, object).reshape(array.shape)
        buffer.put(array)
        return buffer
    # a copy: a weight may be read-only or mapped, and some libraries take neither
    place = _given_or_new(spec, None)
    place.put(tensor.numpy())
    return place


def _given_or_new(spec: TensorSpec, given: Array | None) -> Buffer:
    if given is None:
        if spec.kind is not ValueKind.PLANNED:
            return Buffer(spec)
        return Buffer(spec, allocate(spec.nbytes).view(spec.numpy_dtype).reshape(spec.static_shape))
    if spec.kind is not ValueKind.PLANNED:
        buffer = Buffer(spec)
        buffer.put(given)
        return buffer
    wanted = f"{spec.numpy_dtype}{list(spec.static_shape)}, C-contiguous, aligned and writeable"
    if not isinstance(given, np.ndarray):
        raise FeedError(spec.name, f"bind a NumPy array of {wanted}, not {type(given).__name__}")
    flags = given.flags
    if (
        given.dtype != spec.numpy_dtype
        or given.shape != spec.static_shape
        or not (flags.c_contiguous and flags.aligned and flags.writeable)
    ):
        lacks = [
            word
            for word, has in (
                ("not C-contiguous", flags.c_contiguous),
                ("not aligned", flags.aligned),
                ("read-only", flags.writeable),
            )
            if not has
        ]
        got = ", ".join([f"{given.dtype}{list(given.shape)}", *lacks])
        raise FeedError(spec.name, f"bind an array of {wanted}; got {got}. `run` copies what it is given")
    return Buffer(spec, given)


def _reshaped(place: Buffer, spec: TensorSpec) -> Buffer:
    """The same memory as another value; only planned values share memory."""
    return Buffer(spec, place.array.reshape(spec.static_shape))


def _check_names(kind: str, given: Mapping[str, Array], known: Mapping[str, ir.Value]) -> None:
    for name in given:
        if name not in known:
            raise FeedError(name, f"the model has no such {kind}; it has {', '.join(known) or 'none'}")


def _check_overlap(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> None:
    written = list(outputs.items())
    for index, (name, array) in enumerate(written):
        for other, memory in (*inputs.items(), *written[:index]):
            if isinstance(array, np.ndarray) and isinstance(memory, np.ndarray) and np.may_share_memory(array, memory):
                raise FeedError(
                    name, f"its array shares memory with that of {other!r}; kernels write no input in place"
                )
