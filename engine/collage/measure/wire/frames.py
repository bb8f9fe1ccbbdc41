"""Frames: one JSON header and named byte strings, length-prefixed.

Layout, integers little-endian: the magic `CLG1`, the header's length as 32 bits, the header in UTF-8, then each
attachment's bytes in the order of the header. The header is

    {"schema_version": 1, "kind": ..., "id": N, "body": {...}, "attachments": [[name, length], ...]}

Parsing performs no input or output, so that one parser serves a blocking worker, a polling driver and a fuzzer.
"""

from __future__ import annotations

import dataclasses
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from collage.errors import WireError

SCHEMA_VERSION: Final = 1
_MAGIC: Final = b"CLG1"
_PREFIX: Final = struct.Struct("<4sI")
MAX_HEADER_BYTES: Final = 64 << 20
MAX_ATTACHMENT_BYTES: Final = 8 << 30
_HEADER_KEYS: Final = {"schema_version", "kind", "id", "body", "attachments"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One message on the wire.

    Attributes:
        kind: Message kind; `messages.MESSAGES` maps it to the class of its body.
        id: Number of the request that it is, answers or belongs to.
        body: The message, as JSON.
        attachments: Byte strings by name.
    """

    kind: str
    id: int
    body: Mapping[str, Any]
    attachments: Mapping[str, bytes] = dataclasses.field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the frame as bytes.

        Examples:
            >>> parser = FrameParser()
            >>> parser.feed(Frame(kind="ping", id=3, body={}).encode())
            >>> [(frame.kind, frame.id) for frame in parser.frames()]
            [('ping', 3)]
        """
        header = json.dumps(
            {
                "schema_version": SCHEMA_VERSION,
                "kind": self.kind,
                "id": self.id,
                "body": self.body,
                "attachments": [[name, len(data)] for name, data in self.attachments.items()],
            },
            separators=(",", ":"),
            allow_nan=False,
        ).encode()
        return b"".join((_PREFIX.pack(_MAGIC, len(header)), header, *self.attachments.values()))


class FrameParser:
    """Turns a stream of bytes, fed in pieces of any size, into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._header: dict[str, Any] | None = None
        self._header_end = 0

    def feed(self, data: bytes) -> None:
        """Append the next bytes of the stream."""
        self._buffer += data

    @property
    def mid_frame(self) -> bool:
        """Whether an incomplete frame is buffered."""
        return bool(self._buffer)

    def frames(self) -> Iterator[Frame]:
        """Yield the complete frames and remove them from the buffer.

        Raises:
            WireError: If the stream does not consist of frames of this version; it cannot be resynchronised.
        """
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> Frame | None:
        if self._header is None and not self._read_header():
            return None
        assert self._header is not None
        sizes: list[list[Any]] = self._header["attachments"]
        end = self._header_end + sum(size for _, size in sizes)
        if len(self._buffer) < end:
            return None
        attachments: dict[str, bytes] = {}
        at = self._header_end
        for name, size in sizes:
            attachments[name] = bytes(self._buffer[at : at + size])
            at += size
        header, self._header = self._header, None
        del self._buffer[:end]
        return Frame(kind=header["kind"], id=header["id"], body=header["body"], attachments=attachments)

    def _read_header(self) -> bool:
        if not _MAGIC.startswith(self._buffer[:4]) and self._buffer[:4] != _MAGIC:
            raise WireError(f"expected a frame, got {bytes(self._buffer[:16])!r}")
        if len(self._buffer) < _PREFIX.size:
            return False
        _, length = _PREFIX.unpack_from(self._buffer)
        if length > MAX_HEADER_BYTES:
            raise WireError(f"a frame's header is at most {MAX_HEADER_BYTES} bytes, not {length}")
        end = _PREFIX.size + length
        if len(self._buffer) < end:
            return False
        self._header = _checked(bytes(self._buffer[_PREFIX.size : end]))
        self._header_end = end
        return True


def _checked(data: bytes) -> dict[str, Any]:
    try:
        header = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WireError(f"a frame's header is not JSON: {error}") from error
    if not isinstance(header, dict) or header.get("schema_version") != SCHEMA_VERSION:
        version = header.get("schema_version") if isinstance(header, dict) else None
        raise WireError(
            f"a frame has schema version {version!r}, this side speaks {SCHEMA_VERSION}; "
            "install the same collage-core on both sides"
        )
    attachments = header.get("attachments")
    if (
        header.keys() != _HEADER_KEYS
        or not isinstance(header["kind"], str)
        or type(header["id"]) is not int
        or not isinstance(header["body"], dict)
        or not isinstance(attachments, list)
        or not all(_is_attachment(entry) for entry in attachments)
        or len({entry[0] for entry in attachments}) != len(attachments)
        or sum(entry[1] for entry in attachments) > MAX_ATTACHMENT_BYTES
    ):
        raise WireError(f"a frame's header is malformed: {data[:200]!r}")
    return header


def _is_attachment(entry: object) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], str)
        and type(entry[1]) is int
        and entry[1] >= 0
    )
