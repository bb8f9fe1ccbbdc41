"""Messages between the driver and the process that prepares and evaluates models."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.ir.values.size_range import Shape

AT_NODE = "at node "
"""Begins the line that the process has as its last words while it computes a node."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskPrepareModel:
    """Requests `ModelPrepared` or `ModelFailed`.

    Attributes:
        folder: Where the model is, and where the prepared model goes; see `exchange`.
        input_shapes: A static shape for each input that has free dimensions, by name.
        keep_free: Whether dimensions may stay free.
    """

    folder: str
    input_shapes: Mapping[str, Shape]
    keep_free: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrepared:
    """The prepared model is in the folder."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskReference:
    """Requests `ReferenceValues` or `ModelFailed`; `AskNode` may come before it.

    Attributes:
        store: Directory of the blobs.
        model: The prepared model, as the model of a function without inputs and outputs of its own.
        inputs: A value for each of the model's inputs.
        keep: Names of the values to return; None for all.
        deadline_s: Seconds after which no further node is begun.
        has_fallback: Whether the driver answers `AskNode`.
        conditioned: Whether to find out what rounding does to the values.
    """

    store: str
    model: WireFunction
    inputs: Mapping[str, WireValue]
    keep: tuple[str, ...] | None
    deadline_s: float
    has_fallback: bool
    conditioned: bool = True


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceValues:
    """Result of a reference run.

    Attributes:
        values: The values, by name.
        unchecked: Reason for each node the reference could not compute, by node name.
    """

    values: Mapping[str, WireValue]
    unchecked: Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AskNode:
    """Requests `NodeValues`, from the driver: a model of one node that the reference cannot compute.

    Attributes:
        model: The model, as the model of a function.
        inputs: A value for each of its inputs.
    """

    model: WireFunction
    inputs: Mapping[str, WireValue]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeValues:
    """Answer to `AskNode`.

    Attributes:
        values: The outputs, by name.
        failure: Why there are none; empty if there are.
    """

    values: Mapping[str, WireValue]
    failure: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """An exception that preparing or evaluating raised.

    Attributes:
        kind: Name of its class.
        message: Its text.
        facts: Its attributes as JSON, if it is one of Collage's own; None for any other.
        system: Number, text and file of an error of the operating system; None for any other.
    """

    kind: str
    message: str
    facts: Mapping[str, Any] | None
    system: tuple[int, str, str | None] | None = None
