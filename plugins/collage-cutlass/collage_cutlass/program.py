"""What a kernel enqueues: one call, and around a convolution what brings images to channels-last and back."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Json
from collage_core.ir.content import constant_of
from collage_cutlass.described import Described
from collage_cutlass.problem import Chain, Conv, Gemm, Problem, Source


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor is.

    Attributes:
        kind: `"input"`, `"output"`, `"weight"` (as the model has it), `"made"` (a weight turned when loading) or
            `"scratch"`.
        at: Number of the input or of the output; name of the weight; bytes from the start of the workspace.
    """

    kind: str
    at: int | str


@dataclasses.dataclass(frozen=True, slots=True)
class Turn:
    """A step that brings `[batch, rows, columns]` to `[batch, columns, rows]`."""

    extents: tuple[int, int, int]
    given: Place
    result: Place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Steps in order.

    Attributes:
        problem: Of the call.
        chain: What follows the product.
        places: Of the call's operands and its result.
        before: Turns before the call.
        after: Turns behind it.
        made: Weights that are turned when the kernel is loaded: extents, by name.
        scratch_bytes: Workspace.
    """

    problem: Problem
    chain: Chain
    places: Mapping[str, Place]
    before: tuple[Turn, ...] = ()
    after: tuple[Turn, ...] = ()
    made: Mapping[str, tuple[int, int, int]] = dataclasses.field(default_factory=dict)
    scratch_bytes: int = 0

    @property
    def weights(self) -> frozenset[str]:
        """Names of the weights that are read, as they are or turned."""
        turned = [turn.given for turn in self.before]
        read = {str(place.at) for place in (*self.places.values(), *turned) if place.kind == "weight"}
        return frozenset(read | set(self.made))

    def to_json(self) -> dict[str, Json]:
        """As artifacts keep it."""
        kept = dataclasses.asdict(self)
        chain = {**dataclasses.asdict(self.chain), "source": self.chain.source.value}
        return {**kept, "chain": chain, "kind": "gemm" if isinstance(self.problem, Gemm) else "conv"}

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Program:
        """From what `to_json` gave."""
        problem = (Gemm if kept["kind"] == "gemm" else Conv).from_json(kept["problem"])
        return cls(
            problem=problem,
            chain=Chain(**{**kept["chain"], "source": Source(kept["chain"]["source"])}),
            places={name: Place(**place) for name, place in kept["places"].items()},
            before=tuple(map(_turn, kept["before"])),
            after=tuple(map(_turn, kept["after"])),
            made={name: _three(extents) for name, extents in kept["made"].items()},
            scratch_bytes=kept["scratch_bytes"],
        )


def _turn(kept: Mapping[str, Any]) -> Turn:
    return Turn(_three(kept["extents"]), Place(**kept["given"]), Place(**kept["result"]))


def _three(extents: Sequence[int]) -> tuple[int, int, int]:
    first, second, third = extents
    return (first, second, third)


def assembled(described: Described, inputs: Sequence[onnx_ir.Value]) -> Program:
    """The program of a described group.

    Args:
        described: The group.
        inputs: Of the kernel function.
    """
    positions = {value: number for number, value in enumerate(inputs)}

    def place(value: onnx_ir.Value) -> Place:
        if constant_of(value) is None:
            return Place("input", positions[value])
        return Place("weight", str(value.name))

    places = {name: place(value) for name, value in described.operands.items()}
    places["result"] = Place("output", 0)
    problem = described.problem
    if isinstance(problem, Gemm):
        return Program(problem=problem, chain=described.chain, places=places)
    return _channels_last(problem, described, places)


def _channels_last(problem: Conv, described: Described, places: dict[str, Place]) -> Program:
    """With images turned where turning moves anything: with one channel, or one pixel, it does not."""
    pixels, taps = problem.p * problem.q, problem.r * problem.s
    extents = {"x": (problem.n, problem.c, problem.h * problem.w), "filter": (problem.k, problem.c, taps)}
    if "source" in places and not problem.source_is_vector:
        extents["source"] = (problem.n, problem.k, pixels)
    before: list[Turn] = []
    made: dict[str, tuple[int, int, int]] = {}
    used = 0

    def scratch(shape: tuple[int, int, int]) -> Place:
        nonlocal used
        taken = Place("scratch", used)
        size = shape[0] * shape[1] * shape[2] * described.numbers.itemsize
        used += -(-size // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
        return taken

    turned: dict[tuple[Place, tuple[int, int, int]], Place] = {}
    for name, shape in extents.items():
        given = places[name]
        if 1 in shape[1:]:
            continue
        if (given, shape) in turned:  # an image that is both convolved and added
            places[name] = turned[given, shape]
        elif given.kind == "weight" and name == "filter":
            made[str(given.at)] = shape
            places[name] = Place("made", given.at)
        else:
            places[name] = scratch(shape)
            before.append(Turn(shape, given, places[name]))
        turned[given, shape] = places[name]
    after: list[Turn] = []
    result = (problem.n, pixels, problem.k)
    if 1 not in result[1:]:
        after.append(Turn(result, scratch(result), places["result"]))
        places["result"] = after[0].given
    return Program(
        problem=problem,
        chain=described.chain,
        places=places,
        before=tuple(before),
        after=tuple(after),
        made=made,
        scratch_bytes=used,
    )
