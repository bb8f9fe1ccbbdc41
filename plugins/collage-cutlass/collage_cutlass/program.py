"""Assemble the steps that a kernel enqueues: one call, and copies that transpose images and round factors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Json, KernelFunction, Unsupported, converted, out_of_range
from collage_core.ir.operators.narrowing import overflow
from collage_core.ir.values.content import constant_of
from collage_cuda.places import Place
from collage_cutlass.described import Described
from collage_cutlass.problem import Chain, Conv, Gemm, Move, Problem, Source


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A copy, with its source and destination."""

    move: Move
    given: Place
    result: Place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A sequence of steps around one call.

    Attributes:
        problem: Extents and layouts of the call.
        chain: Epilogue of the product.
        places: Locations of the call's operands and its result.
        before: Copies before the call.
        after: Copies after the call.
        made: Extents, by name, of weights that are transposed when the kernel is loaded.
        scratch_bytes: Size of the workspace.
    """

    problem: Problem
    chain: Chain
    places: Mapping[str, Place]
    before: tuple[Step, ...] = ()
    after: tuple[Step, ...] = ()
    made: Mapping[str, tuple[int, int, int]] = dataclasses.field(default_factory=dict)
    scratch_bytes: int = 0

    @property
    def weights(self) -> frozenset[str]:
        """Names of the weights that are read as core provides them."""
        places = (*self.places.values(), *(step.given for step in self.before))
        return frozenset(str(place.at) for place in places if place.kind == "weight")

    def to_json(self) -> dict[str, Json]:
        """Return the form stored in artifacts."""
        kept = dataclasses.asdict(self)
        chain = {**dataclasses.asdict(self.chain), "source": self.chain.source.value}
        return {**kept, "chain": chain, "kind": "gemm" if isinstance(self.problem, Gemm) else "conv"}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Program:
        """Create a product from the output of `to_json`."""
        problem = (Gemm if kept["kind"] == "gemm" else Conv).from_json(kept["problem"])
        return cls(
            problem=problem,
            chain=Chain(**{**kept["chain"], "source": Source(kept["chain"]["source"])}),
            places={name: Place(**place) for name, place in kept["places"].items()},
            before=tuple(map(_step, kept["before"])),
            after=tuple(map(_step, kept["after"])),
            made={name: _three(extents) for name, extents in kept["made"].items()},
            scratch_bytes=kept["scratch_bytes"],
        )


def _step(kept: Mapping[str, Any]) -> Step:
    move = Move(**{**kept["move"], "extents": _three(kept["move"]["extents"])})
    return Step(move, Place(**kept["given"]), Place(**kept["result"]))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = extents
    return (first, second, third)


def assembled(described: Described, function: KernelFunction) -> tuple[Program, dict[str, str]] | Unsupported:
    """Assemble the program of a described group, and the weights it needs as an artifact's `constants`.

    Args:
        described: The described group.
        function: Function that contains it.

    Returns:
        Both; or which weight is out of the range of the type that factors are rounded to.
    """
    assembly = _Assembly(described, function)
    for name, value in described.operands.items():
        if (refusal := assembly.take(name, value)) is not None:
            return refusal
    problem = described.problem
    factors = assembly.factors()
    for name, extents in factors.items():
        assembly.move(name, extents, factor=True)
    if isinstance(problem, Conv):
        image = (problem.n, problem.k, problem.p * problem.q)
        if "source" in assembly.places and not problem.source_is_vector:
            assembly.move("source", image, factor=False)
        assembly.give_back((problem.n, problem.p * problem.q, problem.k))
    return assembly.program(), assembly.constants


class _Assembly:
    """A program under construction.

    Args:
        described: Computation to assemble.
        function: Kernel function that contains it.

    Attributes:
        places: Locations of operands and the result.
        constants: Constant to request from core, by name of the weight.
    """

    def __init__(self, described: Described, function: KernelFunction) -> None:
        self._described = described
        self._function = function
        self._positions = {value: number for number, value in enumerate(function.model.graph.inputs)}
        self._before: list[Step] = []
        self._after: list[Step] = []
        self._made: dict[str, tuple[int, int, int]] = {}
        self._used = 0
        self._moved: dict[tuple[Place, Move], Place] = {}
        self.places = {"result": Place("output", 0)}
        self.constants: dict[str, str] = {}

    def take(self, operand: str, value: onnx_ir.Value) -> Unsupported | None:
        """Set the place of an operand; a weight that is a factor is requested in the type it is multiplied in."""
        tensor = constant_of(value)
        if tensor is None:
            self.places[operand] = Place("input", self._positions[value])
            return None
        name, content = str(value.name), self._function.constants[str(value.name)]
        dtype = self._described.numbers.narrowed if operand in _FACTORS else None
        if dtype is not None:
            if problem := overflow(name, tensor, dtype):
                return out_of_range(problem, dtype)
            name, content = f"{name}.{dtype.name.lower()}", converted(content, dtype)
        self.places[operand] = Place("weight", name)
        self.constants[name] = content
        return None

    def factors(self) -> dict[str, tuple[int, int, int]]:
        """Return the extents of the factors: as matrices if they are transposed, flat otherwise."""
        of = self._described.problem
        if isinstance(of, Conv):
            return {"x": (of.n, of.c, of.h * of.w), "filter": (of.k, of.c, of.r * of.s)}
        flat = {name: (1, 1, self._count(name)) for name in ("a", "b")}
        return {**flat, "b": (flat["b"][2] // (of.k * of.n), of.k, of.n)} if self._described.turned else flat

    def move(self, operand: str, extents: tuple[int, int, int], *, factor: bool) -> None:
        """Add the move that transposes or rounds an operand for the call, if it needs either."""
        given = self.places[operand]
        narrowed = factor and self._described.numbers.narrowed is not None and given.kind == "input"
        move = Move(extents, turned=1 not in extents[1:], narrowed=narrowed)
        if not (move.turned or move.narrowed):
            return
        if (given, move) not in self._moved:  # an image may be both convolved and added
            if given.kind == "weight" and factor:
                self._made[str(given.at)] = extents
                self._moved[given, move] = Place("made", given.at)
            else:
                place = self._scratch(extents, narrowed=narrowed)
                self._before.append(Step(move, given, place))
                self._moved[given, move] = place
        self.places[operand] = self._moved[given, move]

    def give_back(self, extents: tuple[int, int, int]) -> None:
        """Add the move that converts a channels-last result into the model's layout."""
        if 1 in extents[1:]:
            return
        place = self._scratch(extents, narrowed=False)
        self._after.append(Step(Move(extents, turned=True), place, self.places["result"]))
        self.places["result"] = place

    def program(self) -> Program:
        """Return the assembled program."""
        return Program(
            problem=self._described.problem,
            chain=self._described.chain,
            places=self.places,
            before=tuple(self._before),
            after=tuple(self._after),
            made=self._made,
            scratch_bytes=self._used,
        )

    def _scratch(self, extents: tuple[int, int, int], *, narrowed: bool) -> Place:
        taken = Place("scratch", self._used)
        numbers = self._described.numbers
        itemsize = numbers.itemsize if narrowed else numbers.dtype.numpy().itemsize
        self._used += -(-math.prod(extents) * itemsize // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
        return taken

    def _count(self, operand: str) -> int:
        value = self._described.operands[operand]
        assert value.shape is not None
        return math.prod(value.shape.numpy())


_FACTORS = ("a", "b", "x", "filter")
