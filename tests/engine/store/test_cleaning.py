"""What nothing installed can use goes; everything else stays."""

from __future__ import annotations

import dataclasses

import pytest

from collage.store import BlobSpace, MemoryStore, RecordKey, TuningRecord, toolchain_of, unusable

KEY = RecordKey(structural_hash="h", target="a(x=1)", fingerprint="lib 1", host="c", threads=2, launch="e", timing="t")
PLUGINS = {"a": "p 2"}


def record(works: bool, purpose: str = "select", **key: str) -> TuningRecord:
    return TuningRecord(
        key=dataclasses.replace(KEY, **key),  # type: ignore[arg-type]
        outcome="measured" if works else "failed",
        purpose=purpose,  # type: ignore[arg-type]
        created="2026-01-01T00:00:00+00:00",
        samples_us=(1.0,) if works else (),
    )


@pytest.mark.parametrize(
    ("records", "left"),
    [
        ([record(True, plugin="p 2", fingerprint="lib 0")], []),
        ([record(False, plugin="p 2")], [0]),
        ([record(False, plugin="p 1"), record(False)], []),
        ([record(True, plugin="p 1")], [0]),
        ([record(True, plugin="p 1"), record(True, plugin="p 2")], [1]),
        ([record(True, plugin="p 1"), record(True, "confirm", plugin="p 2")], [0, 1]),
        ([record(True, plugin="p 0"), record(True, plugin="p 1")], [1]),
        ([record(True, plugin="p 1"), record(True, plugin="p 2", structural_hash="g")], [0, 1]),
        ([record(False, plugin="p 1", target="b@cuda:0"), record(False, target="no target at all")], [0, 1]),
    ],
)
def test_what_is_left_of_records(records: list[TuningRecord], left: list[int]) -> None:
    with MemoryStore() as store:
        store.append_all(records)

        store.remove(unusable(store, {"lib 1"}, PLUGINS))

        assert list(store.all_records()) == [records[number] for number in left]


def test_other_versions_can_be_kept() -> None:
    with MemoryStore() as store:
        store.append_all([record(False, plugin="p 1"), record(False, plugin="p 0")])
        for plugin in ("p 0", "p 1", "p 2"):
            store.begin_attempt(dataclasses.replace(KEY, plugin=plugin))

        removal = unusable(store, {"lib 1"}, PLUGINS, keep=("p 1",))

        assert removal.records == {record(False, plugin="p 0").content_id}
        assert {key.plugin for key in removal.attempts} == {"p 0"}


def test_blobs_and_attempts_belong_to_the_version_of_the_library() -> None:
    with MemoryStore() as store:
        for version in ("lib 0", "lib 1"):
            store.put_blob(BlobSpace(toolchain="a", fingerprint=version), "k", b"")
            store.begin_attempt(dataclasses.replace(KEY, fingerprint=version, plugin="p 2"))

        removal = unusable(store, {"lib 1"}, PLUGINS)

        assert [space.fingerprint for space, _ in removal.blobs] == ["lib 0"]
        assert [key.fingerprint for key in removal.attempts] == ["lib 0"]


@pytest.mark.parametrize(
    ("target", "toolchain"),
    [("a", "a"), ("a(x=1,y=2)@cuda:0", "a"), ("a-b@cpu", "a-b"), ("what is it?", "what is it?")],
)
def test_the_toolchain_of_a_target(target: str, toolchain: str) -> None:
    assert toolchain_of(target) == toolchain
