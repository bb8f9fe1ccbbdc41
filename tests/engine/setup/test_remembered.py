"""What the database remembers beside measurements: used if it is understood, found out anew if not."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, cast

import pytest

from collage.build.verifying.verify import Verified
from collage.devices.this_host import this_host
from collage.measure.budget import UNLIMITED
from collage.measure.driver.records import Limits, superseded
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Tolerance
from collage.report.facts.device_facts import DeviceWorkFacts, LaunchFacts
from collage.setup import queries
from collage.setup.dispatch import dispatch_us
from collage.setup.toolchains import Toolchains
from collage.store import BlobSpace, MemoryStore, RecordKey, StoredDocument, TuningRecord
from collage_core.contract import Target
from collage_core.fusion import SubGraph
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Registry, Toolchain
from collage_testing import chain

pytestmark = pytest.mark.guards(
    "what an import or a later version left in the database is not understood; JSON nested without end",
    "as if it were not there: found out anew; an import stops at the line, with what came before",
    area="kills and databases",
)

LIMITS = Limits(tolerance=Tolerance(), deadline_s=60.0)
RECORD = TuningRecord(
    key=RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t"),
    outcome="failed",
    purpose="select",
    created="2026-01-01T00:00:00+00:00",
    reason="wrong numbers",
    stage="check",
    extra={"tolerance": 1e-3, "deadline_s": 60.0},
)


def test_what_is_understood_is_used() -> None:
    assert not superseded(RECORD, LIMITS)


@pytest.mark.parametrize(
    "change",
    [
        {"stage": "tune"},
        {"extra": {"tolerance": None}},
        {"extra": {"tolerance": [1]}},
        {"reason": "worker deadline", "stage": "measure", "extra": {"deadline_s": "long"}},
        {"reason": "worker memory", "stage": "measure", "extra": {"memory_bytes": {}}},
        {"outcome": "measured", "samples_us": (1.0,), "extra": {"calls_per_sample": None}},
        {"outcome": "measured", "samples_us": (1.0,), "extra": {"discarded": 7}},
        {"outcome": "measured", "samples_us": (1.0,), "extra": {"tolerance": "much"}},
    ],
)
def test_a_record_of_another_make_is_as_not_there(change: dict[str, Any]) -> None:
    assert superseded(dataclasses.replace(RECORD, **change), LIMITS)


VERIFIED = Verified(
    max_error=0.1,
    measured_us={"k0000": 2.0},
    site_errors={"k0000": 0.0},
    unchecked={"n": "random"},
    work=DeviceWorkFacts(
        graph_launches=1, copies=2, launches=(LaunchFacts(device="cuda:0", mode="graph", kernels=3, reason=""),)
    ),
)


def test_verification_comes_back_as_it_was() -> None:
    database = MemoryStore()

    database.put_document("v", VERIFIED)

    assert database.get_document(Verified, "v") == VERIFIED


@pytest.mark.parametrize(
    "change",
    [
        {"max_error": None},
        {"measured_us": 3},
        {"site_errors": {"k0000": "small"}},
        {"unchecked": ["n"]},
        {"work": {"copies": "2"}},
        {"work": None},
    ],
    ids=str,
)
def test_a_verification_of_another_make_is_none(change: dict[str, Any]) -> None:
    database = MemoryStore()
    database.put_document("v", VERIFIED)
    stored = database.get_stored("verification", "v")
    assert stored is not None

    for body in ({**stored.body, **change}, {key: stored.body[key] for key in stored.body if key not in change}):
        database.put_stored(dataclasses.replace(stored, body=body))

        assert database.get_document(Verified, "v") is None


@pytest.mark.parametrize("known", [{}, {"dispatch_us": "fast"}, {"dispatch_us": -1.0}, {"dispatch_us": None}])
def test_the_loops_share_is_measured_anew(known: dict[str, Any]) -> None:
    database, host = MemoryStore(), this_host()
    database.put_stored(StoredDocument(kind="dispatch", name=host.fingerprint, version=1, body=known))

    found = dispatch_us(database, host)

    assert 0 < found < 1000
    assert dispatch_us(database, host) == found


class Opinionated:
    """A plugin with an opinion, which a worker would be asked for."""

    @hookimpl
    def collage_query(self, target: Any, model: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    "known",
    [
        b"\xff",
        b"{",
        b"[" * 200_000,
        b"7",
        b'{"first": "no"}',
        b'{"deadline_s": null}',
        b'{"version": 2, "body": {"refused": []}}',
        b'{"version": 1, "body": {"refused": [["0", "no"]]}}',
        b'{"version": 2, "body": {"deadline_s": 600, "reason": 7, "created": "2026-01-01T00:00:00+00:00"}}',
        b'{"version": 1}',
    ],
)
def test_an_opinion_of_another_make_is_asked_for_again(known: bytes, tmp_path: Any) -> None:
    graph = DataflowGraph(chain("Relu", "Exp"))
    target = Target(toolchain="mock", fingerprint="mock 1")
    database, asked = MemoryStore(), []

    def query(*arguments: object) -> dict[str, str]:
        asked.append(arguments)
        return {graph.names[0]: "too small"}

    environment = SimpleNamespace(
        registry=Registry.of(Toolchain("mock", Opinionated())),
        database=database,
        store=BlobStore(tmp_path),
        pool=SimpleNamespace(worker=lambda name: SimpleNamespace(query=query)),
        plugins={"mock": "collage-mock 1.0"},
        retry_failed=False,
        budget=UNLIMITED,
    )
    whole = SubGraph(graph, graph.all_mask)
    space = BlobSpace(toolchain="collage-query", fingerprint=target.fingerprint)
    name = f"{target.name}/{whole.structural_hash}/collage-mock 1.0"
    for key in (name, f"{name}/failed"):
        database.put_blob(space, key, known)

    for _ in range(2):
        assert queries._query(whole, target, cast(Toolchains, environment)) == {0: "too small"}
    assert len(asked) == 1
