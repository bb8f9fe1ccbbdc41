from __future__ import annotations

import dataclasses
import json

import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage.documents.artifact_manifest import ArtifactManifest
from collage.errors import WireError
from collage.measure.wire.codec import Codec, blobs_of
from collage.measure.wire.frames import Frame
from collage.measure.wire.messages import MESSAGES, AskMeasure, AskProfile, AskTargets, Message, Opinion, Progress
from collage.measure.wire.outcomes import BuildSettings, Built, Failed, Measured, Profiled, Stage, Tolerance
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage_core.contract import (
    Device,
    Joins,
    KernelProfile,
    ProfiledPart,
    Protocol,
    Requirement,
    Target,
    TensorSpec,
    UnattributedTime,
    ValueKind,
)

TARGET = Target(
    toolchain="ov",
    options=(("precision", "bf16"),),
    fingerprint="ov 1",
    joins=Joins.ANY,
    rounds=frozenset({"MatMul", "Conv"}),
    excludes=frozenset({"b", "a"}),
    max_depth=3,
)
FUNCTION = WireFunction(
    name="k",
    model="m",
    weights=("w1", "w2"),
    inputs=(TensorSpec(name="x", dtype=onnx_ir.DataType.BFLOAT16, shape=(1, 2)),),
    outputs=(
        TensorSpec(name="f", kind=ValueKind.FOREIGN, dtype=None, shape=None),
        TensorSpec(name="b", kind=ValueKind.BOUNDED, dtype=onnx_ir.DataType.INT64, shape=(None, 3), bound=(9, 3)),
    ),
    composite="",
    constants={"w": "hash"},
)
DEVICE = Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65.06", memory_bytes=1 << 37)
MEASURE = AskMeasure(
    target=TARGET,
    function=FUNCTION,
    inputs=(WireValue(kind="tensor", dtype="BFLOAT16", shape=(1, 2), blob="i"),),
    expected=(None, WireValue(kind="sequence", items=(WireValue(kind="tensor", blob="e"), WireValue(kind="absent")))),
    build=BuildSettings(threads=2),
    protocol=Protocol(),
    tolerance=Tolerance(),
    deadline_s=3.5,
)
ARTIFACT = ArtifactManifest(
    files={"a": "blob"},
    metadata={"nested": [1, {"x": None}]},
    requires=(Requirement(kind="isa", name="avx512f"),),
    constants={},
    workspace_bytes=0,
    variant="v",
    capturable=False,
    deterministic=True,
)
MEASURED = Measured(samples_us=(1.0, 2.5), warmup_runs=3, calls_per_sample=4)


@pytest.mark.parametrize(
    "message",
    [
        MEASURE,
        AskTargets(host=this_host()),
        AskTargets(host=dataclasses.replace(this_host(), devices=(DEVICE,))),
        AskProfile(
            target=TARGET,
            function=FUNCTION,
            inputs=(),
            build=BuildSettings(threads=2),
            deadline_s=9.0,
            variant=None,
            runs=5,
        ),
        Profiled(
            profile=KernelProfile(
                parts=(ProfiledPart(nodes=("a", "b"), time_us=2.5, conversion_us=1.0),),
                unattributed=(UnattributedTime(name="wait", time_us=0.5),),
            ),
            variant="v",
        ),
        Built(artifact=ARTIFACT),
        MEASURED,
        Progress(stage=Stage.RUN, best=MEASURED),
        Progress(stage=Stage.RUN),
        Failed(stage=Stage.CHECK, reason="wrong"),
        Opinion(refusals=None),
        Opinion(refusals={"n": "too large"}),
    ],
)
def test_messages_survive_the_wire(message: Message) -> None:
    codec = Codec()
    frame = codec.encode(message, 5)
    carried = Frame(kind=frame.kind, id=frame.id, body=json.loads(json.dumps(frame.body)))

    assert codec.decode(carried) == message


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("nonsense", {}),
        ("failed", {"stage": "check"}),
        ("failed", {"stage": "check", "reason": "x", "more": 1}),
        ("failed", {"stage": "elsewhere", "reason": "x"}),
        ("failed", {"stage": "check", "reason": 3}),
        ("measured", {"samples_us": ["1"], "warmup_runs": 1, "calls_per_sample": 1}),
        ("measured", {"samples_us": [1.0], "warmup_runs": True, "calls_per_sample": 1}),
        ("measured", {"samples_us": [1.0], "warmup_runs": 1.5, "calls_per_sample": 1}),
        ("measured", {"samples_us": [float("nan")], "warmup_runs": 1, "calls_per_sample": 1}),
    ],
)
def test_anything_else_is_refused(kind: str, body: dict[str, object]) -> None:
    with pytest.raises(WireError):
        Codec().decode(Frame(kind=kind, id=1, body=body))


def test_every_message_has_one_kind() -> None:
    assert len(set(MESSAGES.values())) == len(MESSAGES)


def test_every_blob_a_message_names_is_found() -> None:
    assert sorted(blobs_of(MEASURE)) == ["e", "i", "m", "w1", "w2"]
    assert list(blobs_of(Built(artifact=ARTIFACT))) == ["blob"]
