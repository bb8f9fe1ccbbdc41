"""What a store need not keep: what is old, and what no package in use needs."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest

from collage.commands.stores import retention
from collage.commands.stores.retention import of_other_models, older_than, together
from collage.store import (
    BlobSpace,
    KernelOfModel,
    MemoryStore,
    RecordKey,
    Removal,
    StoredDocument,
    TuningRecord,
    TuningStore,
    plan_name,
)

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="cpu", threads=2, launch="eager", timing="t")
NOW = datetime.datetime(2026, 6, 1, tzinfo=datetime.UTC)
DAY_S = 86_400.0


@pytest.fixture
def store() -> Iterator[TuningStore]:
    with MemoryStore() as store:
        yield store


def record(structural_hash: str, days: float) -> TuningRecord:
    key = RecordKey(**{**{name: getattr(KEY, name) for name in KEY.__slots__}, "structural_hash": structural_hash})
    created = (NOW - datetime.timedelta(days=days)).isoformat()
    return TuningRecord(key=key, outcome="refused", purpose="select", created=created, reason="no")


def note(store: TuningStore, kind: str, name: str) -> None:
    store.put_stored(StoredDocument(kind=kind, name=name, version=1, body={}))


def test_records_that_are_older_go_and_others_stay(store: TuningStore) -> None:
    old, young = record("old", 40), record("young", 20)
    store.append_all([old, young])

    removal = older_than(store, 30 * DAY_S, NOW)

    assert removal == Removal(records=frozenset({old.content_id}))


def test_what_is_known_of_plans_ages_and_what_is_known_of_machines_stays(
    store: TuningStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"race": plan_name("m", ["t"], "d"), "verification": plan_name("m", ["t"], "d"), "machine": "cpu"}
    for kind, name in names.items():
        note(store, kind, name)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)

    removal = older_than(store, 3600.0, later)

    assert removal.documents == {("race", names["race"]), ("verification", names["verification"])}
    assert not older_than(store, 2 * DAY_S, later)


@pytest.mark.parametrize("seconds", [1e9, 1e12, 1e300])
def test_an_age_that_nothing_has_removes_nothing(seconds: float, store: TuningStore) -> None:
    store.append(record("old", 400))

    assert not older_than(store, seconds, NOW)


def test_what_no_package_needs_goes(store: TuningStore, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = record("used", 1), record("unused", 1)
    store.append_all([used, unused])
    for model, kernel in (("a" * 64, "used"), ("b" * 64, "unused")):
        note(store, KernelOfModel.KIND, f"{model}/{kernel}")
        note(store, "race", plan_name(model, ["t"], "d"))
        store.put_blob(BlobSpace(toolchain="collage-query", fingerprint="f"), f"t/{kernel}", b"answers")

    class Facts:
        class model:  # noqa: N801
            sha256 = "a" * 64

    class Package:
        plans = (type("Plan", (), {"record": {}})(),)

    def loaded(package: Any) -> Any:
        assert package == "in-use.collage"
        return Package

    monkeypatch.setattr(retention, "load_package", loaded)
    monkeypatch.setattr(retention, "record_from_document", lambda document, source: Facts)

    removal = of_other_models(store, ["in-use.collage"])

    assert removal.records == {unused.content_id}
    assert removal.documents == {(KernelOfModel.KIND, f"{'b' * 64}/unused"), ("race", plan_name("b" * 64, ["t"], "d"))}
    assert {key for _, key in removal.blobs} == {"t/unused"}


def test_removals_together_remove_all() -> None:
    one = Removal(records=frozenset({"a"}), documents=frozenset({("k", "n")}))
    other = Removal(records=frozenset({"b"}), attempts=frozenset({KEY}))

    assert together([one, other]) == Removal(
        records=frozenset({"a", "b"}), attempts=frozenset({KEY}), documents=frozenset({("k", "n")})
    )
