"""Jobs are frames of JSON, and nothing else is a job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collage.errors import WireError
from collage.fleet.jobs import (
    JOBS,
    AskDescription,
    AskInterference,
    AskOptimize,
    Description,
    Interference,
    OptimizeDone,
    from_bytes,
    to_bytes,
)
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.frames import Frame
from collage.measure.wire.outcomes import Failed, Measured, Refused, Stage
from collage_core.contract import Target
from collage_core.ir.values.size_range import SizeRange
from collage_testing.asking import HOST
from collage_testing.kit.runners import sum_request

TARGET = Target(toolchain="t", fingerprint="t 1", options=(("a", "b"),))
MESSAGES: tuple[Any, ...] = (
    AskDescription(toolchains=("a", "b")),
    AskDescription(toolchains=None),
    Description(
        host=HOST,
        leased=HOST,
        boot="b",
        judge=5,
        targets={"t": (TARGET,)},
        plugins={"t": "collage-t 1"},
        unusable={"u": "why"},
    ),
    Measured(samples_us=(1.5, 2.5), warmup_runs=3, calls_per_sample=1),
    Refused(reason="no"),
    Failed(stage=Stage.RUN, reason="no"),
    AskInterference(threads=2, duration_s=0.5),
    Interference(runs=((0.0, 0.5), (0.5, 0.25))),
    AskOptimize(
        name="m.onnx",
        model="0" * 64,
        files={"w/data": "1" * 64},
        toolchains=None,
        exclude=("a",),
        input_shapes={"x": (1, SizeRange.parse("1..8@4"), 3)},
        preset="quick",
        search="lazy",
        budget_s=None,
        max_error=0.01,
        threads=2,
        seed=1,
        deadline_s=60.0,
    ),
    OptimizeDone(package="2" * 64),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was_sent(message: Any) -> None:
    assert from_bytes(to_bytes(message)) == message


def test_a_request_to_measure_arrives_as_it_was_sent(tmp_path: Path) -> None:
    ask = sum_request(TARGET, BlobStore(tmp_path))

    assert from_bytes(to_bytes(ask)) == ask


def test_every_kind_is_looked_at_here() -> None:
    assert {type(message).__name__ for message in MESSAGES} | {"AskMeasure"} == {
        each.__name__ for each in JOBS.values()
    }


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        to_bytes(MESSAGES[0]) * 2,
        to_bytes(MESSAGES[0])[:-1],
        to_bytes(MESSAGES[0]) + b"CLG",
        Frame(kind="hello", id=0, body={"toolchain": "t", "failure": ""}).encode(),
        Frame(kind="ask_description", id=0, body={"toolchains": ["a"], "path": "/etc"}).encode(),
        Frame(kind="ask_description", id=0, body={"toolchains": 5}).encode(),
        Frame(kind="ask_description", id=0, body={"toolchains": ["a"]}, attachments={"x": b"y"}).encode(),
    ],
    ids=[
        "nothing",
        "garbage",
        "two",
        "cut",
        "more",
        "a worker's message",
        "another field",
        "another type",
        "an attachment",
    ],
)
def test_what_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        from_bytes(data)
