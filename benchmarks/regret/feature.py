"""What a head, a body or a tail hands to the next part of a generated model."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable
from typing import Literal, TypeAlias

import onnx

from benchmarks.models.entry import Inputs
from benchmarks.models.graph import GraphWriter

Kind: TypeAlias = Literal["image", "tokens", "clip"]
"""`image` is [1, C, H, W], `tokens` [1, T, C], `clip` [1, C, D, H, W]; all float32."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """A tensor between two parts.

    Attributes:
        kind: Meaning of its axes.
        tensor: Name of the tensor.
        shape: Its extents.
    """

    kind: Kind
    tensor: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """Extent of the feature axis."""
        return self.shape[-1 if self.kind == "tokens" else 1]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """How a deployed model takes its input.

    Attributes:
        name: Part of the model's name; empty if it adds nothing.
        makes: Kind of feature.
        operators: How many nodes it has that need a kernel.
        pixels: Whether an image it makes has three channels.
        build: Appends the head to a graph.
        inputs: Makes inputs by name.
    """

    name: str
    makes: Kind
    operators: int
    build: Callable[[GraphWriter, random.Random], Feature]
    inputs: Callable[[onnx.ModelProto, int], Inputs]
    pixels: bool = True

    def fits(self, body: Body) -> bool:
        """Return whether a body reads what this head makes."""
        return self.makes == body.takes and (self.pixels or not body.needs_pixels)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A few blocks of a model of the suite.

    Attributes:
        name: Part of the model's name.
        takes: Kind of feature it reads.
        makes: Kind of feature it makes.
        operators: As of `Head`.
        build: Appends the blocks to a graph.
        needs_pixels: Whether its first weights are those of a model that reads three channels.
    """

    name: str
    takes: Kind
    makes: Kind
    operators: int
    build: Callable[[GraphWriter, Feature, random.Random], Feature]
    needs_pixels: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Tail:
    """How a deployed model turns features into answers.

    Attributes:
        name: Part of the model's name.
        takes: Kinds of features it reads.
        operators: As of `Head`.
        build: Appends the tail to a graph; returns the outputs of the model.
    """

    name: str
    takes: tuple[Kind, ...]
    operators: int
    build: Callable[[GraphWriter, Feature, random.Random], tuple[str, ...]]


def shaped(g: GraphWriter, kind: Kind, tensor: str) -> Feature:
    """Return a tensor as a feature; its shape is inferred.

    Raises:
        ValueError: If shape inference does not determine it.
    """
    [output] = g.model(tensor).graph.output
    dims = output.type.tensor_type.shape.dim
    if not all(dim.HasField("dim_value") for dim in dims):
        raise ValueError(f"the shape of {tensor!r} is not known")
    return Feature(kind=kind, tensor=tensor, shape=tuple(dim.dim_value for dim in dims))
