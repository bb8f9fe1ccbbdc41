from __future__ import annotations

import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.errors import WireError
from collage.measure.wire.frames import Frame, FrameParser

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FRAMES = st.builds(
    Frame,
    kind=st.text(max_size=8),
    id=st.integers(0, 2**40),
    body=st.dictionaries(st.text(max_size=4), JSON, max_size=4),
    attachments=st.dictionaries(st.text(max_size=4), st.binary(max_size=64), max_size=3),
)


@given(st.lists(FRAMES, max_size=4), st.lists(st.integers(1, 97), min_size=1, max_size=8))
def test_frames_survive_any_fragmentation(frames: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(frame.encode() for frame in frames)
    parser, found, at, turn = FrameParser(), [], 0, 0
    while at < len(stream):
        size = sizes[turn % len(sizes)]
        parser.feed(stream[at : at + size])
        found += list(parser.frames())
        at, turn = at + size, turn + 1

    assert found == frames
    assert not parser.mid_frame


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_on(noise: bytes) -> None:
    parser = FrameParser()
    parser.feed(noise)
    try:
        frames = list(parser.frames())
    except WireError:
        return
    assert not frames
    assert b"CLG1".startswith(noise[:4]) or noise[:4] == b"CLG1"


@given(FRAMES, st.data())
def test_a_damaged_frame_never_raises_anything_else(frame: Frame, data: st.DataObject) -> None:
    stream = bytearray(frame.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    parser = FrameParser()
    parser.feed(bytes(stream))
    with contextlib.suppress(WireError):
        list(parser.frames())


def _with_header(header: object) -> bytes:
    data = json.dumps(header).encode()
    return struct.pack("<4sI", b"CLG1", len(data)) + data


GOOD = {"schema_version": 1, "kind": "ping", "id": 1, "body": {}, "attachments": []}


@pytest.mark.parametrize(
    "change",
    [
        {"schema_version": 2},
        {"id": "1"},
        {"id": True},
        {"kind": None},
        {"body": []},
        {"attachments": [["a", -1]]},
        {"attachments": [["a", 1], ["a", 1]]},
        {"attachments": [["a", 1 << 60]]},
        {"surplus": 1},
    ],
)
def test_a_malformed_header_is_refused(change: dict[str, object]) -> None:
    parser = FrameParser()
    parser.feed(_with_header(GOOD | change))
    with pytest.raises(WireError):
        list(parser.frames())


def test_a_frame_of_another_version_says_what_to_do() -> None:
    parser = FrameParser()
    parser.feed(_with_header(GOOD | {"schema_version": 9}))
    with pytest.raises(WireError, match="install the same collage-core on both sides"):
        list(parser.frames())


def test_a_header_that_never_ends_is_refused_at_once() -> None:
    parser = FrameParser()
    parser.feed(struct.pack("<4sI", b"CLG1", 2**32 - 1))
    with pytest.raises(WireError, match="at most"):
        list(parser.frames())
