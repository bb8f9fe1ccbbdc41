"""Messages to frames and back, strictly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import cattrs
import onnx_ir

from collage.errors import WireError
from collage.measure.wire.frames import Frame
from collage.measure.wire.messages import MESSAGES, Message
from collage.measure.wire.wire_values import WireArtifact, WireFunction, WireValue
from collage_core.contract import Obstacle


class Codec:
    """Accepts exactly what it would itself have written.

    Examples:
        >>> from collage.measure.wire.outcomes import Refused
        >>> codec = Codec()
        >>> codec.decode(codec.encode(Refused(reason="needs k % 8 == 0"), 7))
        Refused(reason='needs k % 8 == 0', obstacle=<Obstacle.OTHER: 'other'>)
    """

    def __init__(self) -> None:
        self._converter = make_converter()
        self._kinds = {message: kind for kind, message in MESSAGES.items()}

    def encode(self, message: Message, identifier: int, attachments: Mapping[str, bytes] | None = None) -> Frame:
        """The frame of a message.

        Args:
            message: An instance of a class in `MESSAGES`.
            identifier: Number of the request.
            attachments: Bytes that go with it.
        """
        return Frame(
            kind=self._kinds[type(message)],
            id=identifier,
            body=self._converter.unstructure(message),
            attachments=attachments or {},
        )

    def decode(self, frame: Frame) -> Message:
        """The message in a frame.

        Raises:
            WireError: If the kind is unknown or the body is not exactly that message.
        """
        message = MESSAGES.get(frame.kind)
        if message is None:
            raise WireError(f"unknown kind of message {frame.kind[:80]!r}")
        try:
            return self._converter.structure(frame.body, message)
        except Exception as error:  # cattrs and the constructors raise many types
            raise WireError(f"malformed {frame.kind!r} message: {type(error).__name__}: {error}") from error


def make_converter() -> cattrs.Converter:
    """A strict converter for the contract's types: no unknown keys, no conversions between primitive types."""
    converter = cattrs.Converter(detailed_validation=False, forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _finite)
    converter.register_structure_hook(onnx_ir.DataType, lambda name, _: onnx_ir.DataType[name])
    converter.register_unstructure_hook(onnx_ir.DataType, lambda dtype: dtype.name)
    converter.register_structure_hook(Obstacle, lambda name, _: Obstacle(_exactly(str)(name, str)))
    converter.register_unstructure_hook(Obstacle, lambda obstacle: obstacle.value)  # else it counts as a str
    converter.register_unstructure_hook_func(lambda kind: getattr(kind, "__origin__", kind) is frozenset, sorted)
    return converter


def blobs_of(message: Any) -> Iterator[str]:
    """Names of all blobs a message refers to, repetitions included."""
    if isinstance(message, WireFunction):
        yield message.model
        yield from message.weights
    elif isinstance(message, WireArtifact):
        yield from message.files.values()
    elif isinstance(message, WireValue):
        if message.kind == "tensor":
            yield message.blob
        for item in message.items:
            yield from blobs_of(item)
    elif isinstance(message, tuple):
        for item in message:
            yield from blobs_of(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            yield from blobs_of(getattr(message, field.name))


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def structure(value: Any, _: Any) -> Any:
        if type(value) is not kind:  # a bool is an int, and int("3") would pass
            raise TypeError(f"expected {kind.__name__}, got {type(value).__name__}")
        return value

    return structure


def _finite(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"expected a finite number, got {value!r}")
    return float(value)
