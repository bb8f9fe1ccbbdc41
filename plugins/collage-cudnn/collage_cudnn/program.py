"""Assemble the steps that a kernel enqueues: plans, layout copies, and the place of every tensor.

An image that one graph writes in the layout the next one reads is not converted; only tensors that enter or
leave a kernel are in core's layout. A region of several graphs therefore converts at its border alone, and
the cost of that is part of the measurement.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Json
from collage_core.ir.values.content import constant_of
from collage_cuda.places import Place
from collage_cudnn.described import Described, Operand
from collage_cudnn.graph import DataType, Graph, Tensor, lie_alike
from collage_cudnn.library import Conversion
from collage_cudnn.weights import Recipe, Weight


@dataclasses.dataclass(frozen=True, slots=True)
class Copy:
    """A step that copies a tensor into another layout."""

    conversion: Conversion
    source: Place
    destination: Place

    @property
    def read(self) -> tuple[Place, ...]:
        """Places it reads."""
        return (self.source,)


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """A step that executes a graph's plan; places are in the order of identifiers."""

    graph: int
    places: tuple[Place, ...]

    @property
    def read(self) -> tuple[Place, ...]:
        """Places it reads."""
        return self.places[:-1]


Step = Copy | Run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A sequence of steps.

    Attributes:
        graphs: Distinct graphs of the steps.
        steps: Steps in order of execution.
        made: Weights derived when the kernel is loaded.
        scratch_bytes: Workspace for intermediate tensors; the plans' workspace follows it.
    """

    graphs: tuple[Graph, ...]
    steps: tuple[Step, ...]
    made: tuple[Weight, ...]
    scratch_bytes: int

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts; graphs are contained in their plans."""
        return {
            "steps": [_step_to_json(step) for step in self.steps],
            "made": [weight.to_json() for weight in self.made],
            "scratch_bytes": self.scratch_bytes,
        }

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Program:
        """Create a product from the output of `to_json`."""
        return cls(
            graphs=(),
            steps=tuple(map(_step_from_json, kept["steps"])),
            made=tuple(map(Weight.from_json, kept["made"])),
            scratch_bytes=kept["scratch_bytes"],
        )


def assembled(parts: Iterable[Described], inputs: Sequence[onnx_ir.Value], outputs: Sequence[onnx_ir.Value]) -> Program:
    """Assemble the program of described groups, given in an order in which they can be computed.

    Args:
        parts: The groups; a value that one writes and another reads is the same object in both.
        inputs: Inputs of the whole.
        outputs: Outputs of the whole.
    """
    writer = _Writer(tuple(parts), inputs, outputs)
    for number, part in enumerate(writer.parts):
        writer.write(part, number)
    return writer.program()


@dataclasses.dataclass(frozen=True, slots=True)
class _Lying:
    """One copy of a value: its layout and place; `as_core` if core uses that layout, whatever the extents."""

    tensor: Tensor
    place: Place
    as_core: bool


class _Writer:
    """Collects steps; tracks where each value is stored, and with which strides."""

    def __init__(
        self, parts: tuple[Described, ...], inputs: Sequence[onnx_ir.Value], outputs: Sequence[onnx_ir.Value]
    ) -> None:
        self.parts = parts
        self._inputs = {value: number for number, value in enumerate(inputs)}
        self._outputs = {value: number for number, value in enumerate(outputs)}
        self._graphs: list[Graph] = []
        self._steps: list[Step] = []
        self._made: list[Weight] = []
        self._scratch = _Scratch()
        self._lying: dict[onnx_ir.Value, list[_Lying]] = {}
        self._last: dict[onnx_ir.Value, int] = {}
        for number, part in enumerate(parts):
            for operand in part.operands.values():
                self._last.update(dict.fromkeys(operand.values, number))

    def write(self, part: Described, number: int) -> None:
        dtype = part.graph.dtype
        places = [self._read(part.operands[tensor.name], tensor, dtype) for tensor in part.graph.inputs]
        written, wanted, value = part.graph.output, part.stored, part.result
        exported = self._outputs.get(value)
        as_core = lie_alike(written.dims, written.strides, wanted.strides)
        direct = exported is not None and as_core
        place = Place("output", exported) if direct and exported is not None else self._scratch.take(written, dtype)
        if part.graph not in self._graphs:
            self._graphs.append(part.graph)
        self._steps.append(Run(self._graphs.index(part.graph), (*places, place)))
        self._lying[value] = [_Lying(written, place, as_core)]
        if exported is not None and not direct:
            self._copied(value, wanted, dtype, Place("output", exported), as_core=True)
        for operand in (*part.operands.values(), Operand((value,), written)):
            for read in operand.values:
                if self._last.get(read, -1) <= number:
                    self._release(read)

    def program(self) -> Program:
        return Program(
            graphs=tuple(self._graphs),
            steps=tuple(self._steps),
            made=tuple(self._made),
            scratch_bytes=self._scratch.most,
        )

    def _read(self, operand: Operand, tensor: Tensor, dtype: DataType) -> Place:
        """Return the place of a graph's input; a different layout is converted once for all readers."""
        constants = all(constant_of(value) is not None for value in operand.values)
        if constants:
            return self._weight(operand, tensor, dtype)
        [value] = operand.values
        if value in self._inputs and value not in self._lying:
            self._lying[value] = [_Lying(operand.stored, Place("input", self._inputs[value]), True)]
        for lies in self._lying[value]:
            # as core has it, a tensor may be seen with other extents: a norm's rows are an image's batch and space
            seen = operand.stored if lies.as_core else lies.tensor
            if seen.dims == tensor.dims and lie_alike(tensor.dims, seen.strides, tensor.strides):
                return lies.place
        first = self._lying[value][0]
        if not first.as_core and first.tensor.dims != tensor.dims:
            stored = next(part.stored for part in self.parts if part.result is value)
            self._copied(value, stored, dtype, self._scratch.take(stored, dtype), as_core=True)
            return self._read(operand, tensor, dtype)
        return self._copied(value, tensor, dtype, self._scratch.take(tensor, dtype), seen=operand.stored)

    def _weight(self, operand: Operand, tensor: Tensor, dtype: DataType) -> Place:
        as_it_is = operand.recipe is Recipe.AS_IS
        if as_it_is and lie_alike(tensor.dims, operand.stored.strides, tensor.strides):
            return Place("weight", str(operand.values[0].name))
        made = Weight(
            recipe=operand.recipe,
            constants=tuple(str(value.name) for value in operand.values),
            dims=tensor.dims,
            strides=tensor.strides,
            dtype=str(dtype.value.numpy()),
            number=operand.number,
        )
        if made not in self._made:
            self._made.append(made)
        return Place("made", self._made.index(made))

    def _copied(
        self,
        value: onnx_ir.Value,
        after: Tensor,
        dtype: DataType,
        destination: Place,
        *,
        as_core: bool = False,
        seen: Tensor | None = None,
    ) -> Place:
        """Copy a value into another layout.

        Args:
            value: Value to copy.
            after: Layout of the copy.
            dtype: Type of its elements.
            destination: Place of the copy.
            as_core: Whether the new layout is the one core uses.
            seen: Tensor through which core's layout is read, if the source has it.
        """
        source = next((each for each in self._lying[value] if each.as_core), self._lying[value][0])
        before = seen if seen is not None and source.as_core else source.tensor
        assert before.dims == after.dims, "a copy keeps extents"
        conversion = Conversion(dtype, after.dims, before.strides, after.strides)
        self._steps.append(Copy(conversion, source.place, destination))
        self._lying[value].append(_Lying(after, destination, as_core))
        return destination

    def _release(self, value: onnx_ir.Value) -> None:
        for lies in self._lying.get(value, ()):
            if lies.place.kind == "scratch":
                self._scratch.give_back(lies.place)
        self._lying.pop(value, None)


class _Scratch:
    """Allocator of places in the workspace: first fit."""

    def __init__(self) -> None:
        self._taken: dict[int, int] = {}
        self.most = 0

    def take(self, tensor: Tensor, dtype: DataType) -> Place:
        size = -(-tensor.span * dtype.itemsize // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
        start = 0
        for taken in sorted(self._taken):
            if taken - start >= size:
                break
            start = taken + self._taken[taken]
        self._taken[start] = size
        self.most = max(self.most, start + size)
        return Place("scratch", start)

    def give_back(self, place: Place) -> None:
        self._taken.pop(int(place.at), None)


def _step_to_json(step: Step) -> dict[str, Json]:
    if isinstance(step, Run):
        return {"run": step.graph, "places": [[place.kind, place.at] for place in step.places]}
    conversion = step.conversion
    return {
        "copy": {**dataclasses.asdict(conversion), "dtype": conversion.dtype.name},
        "places": [[place.kind, place.at] for place in (step.source, step.destination)],
    }


def _step_from_json(kept: Mapping[str, Any]) -> Step:
    places = tuple(Place(kind, at) for kind, at in kept["places"])
    if "run" in kept:
        return Run(kept["run"], places)
    copy = kept["copy"]
    before, after = tuple(copy["before"]), tuple(copy["after"])
    return Copy(Conversion(DataType[copy["dtype"]], tuple(copy["dims"]), before, after), *places)
