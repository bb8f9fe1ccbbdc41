"""Convert messages to frames and back, strictly."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import cattrs
import onnx_ir

from collage.documents.artifact_manifest import ArtifactManifest
from collage.documents.strict import strict_converter
from collage.errors import WireError
from collage.measure.wire.frames import Frame
from collage.measure.wire.messages import MESSAGES, Message
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.contract import Obstacle


class Codec:
    """A strict codec: it accepts exactly what it would itself have written.

    Args:
        kinds: The class of each kind of message, a dataclass.

    Examples:
        >>> from collage.measure.wire.outcomes import Refused
        >>> codec = Codec()
        >>> codec.decode(codec.encode(Refused(reason="needs k % 8 == 0"), 7))
        Refused(reason='needs k % 8 == 0', obstacle=<Obstacle.OTHER: 'other'>)
    """

    def __init__(self, kinds: Mapping[str, type] = MESSAGES) -> None:
        self._converter = make_converter()
        self._messages = kinds
        self._kinds = {message: kind for kind, message in kinds.items()}

    def encode(self, message: Message, identifier: int, attachments: Mapping[str, bytes] | None = None) -> Frame:
        """Encode a message as a frame.

        Args:
            message: An instance of one of the classes.
            identifier: Number of the request.
            attachments: Bytes sent with the message, by name.
        """
        return Frame(
            kind=self._kinds[type(message)],
            id=identifier,
            body=self._converter.unstructure(message),
            attachments=attachments or {},
        )

    def decode(self, frame: Frame) -> Message:
        """Decode the message in a frame.

        Raises:
            WireError: If the kind is unknown or the body does not match the message's schema exactly.
        """
        message = self._messages.get(frame.kind)
        if message is None:
            raise WireError(f"unknown kind of message {frame.kind[:80]!r}")
        try:
            return self._converter.structure(frame.body, message)
        except Exception as error:  # cattrs and the constructors raise many types
            raise WireError(f"malformed {frame.kind!r} message: {type(error).__name__}: {error}") from error


def make_converter() -> cattrs.Converter:
    """Return a strict converter that knows the contract's types, too."""
    converter = strict_converter()
    converter.register_structure_hook(onnx_ir.DataType, lambda name, _: onnx_ir.DataType[name])
    converter.register_unstructure_hook(onnx_ir.DataType, lambda dtype: dtype.name)
    converter.register_structure_hook(Obstacle, lambda name, _: Obstacle(converter.structure(name, str)))
    converter.register_unstructure_hook(Obstacle, lambda obstacle: obstacle.value)  # else it counts as a str
    return converter


def blobs_of(message: Any) -> Iterator[str]:
    """Yield the names of all blobs a message refers to, repetitions included."""
    if isinstance(message, WireFunction):
        yield message.model
        yield from message.weights
    elif isinstance(message, ArtifactManifest):
        yield from message.files.values()
    elif isinstance(message, WireValue):
        if message.kind == "tensor":
            yield message.blob
        for item in message.items:
            yield from blobs_of(item)
    elif isinstance(message, tuple):
        for item in message:
            yield from blobs_of(item)
    elif isinstance(message, Mapping):
        for item in message.values():
            yield from blobs_of(item)
    elif dataclasses.is_dataclass(message):
        for field in dataclasses.fields(message):
            yield from blobs_of(getattr(message, field.name))
