"""Profiles of toolchains: made once, shared by structural twins, and no loss where a profiler fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage.measure.driver.client import Worker
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskProfile
from collage.measure.wire.outcomes import Failed, Profiled, Refused
from collage_core.contract import KernelProfile, ProfiledPart, Unmeasured, Unsupported
from collage_core.fusion import CandidateKernel, FusionSpec, SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.integration.measure.conftest import SOURCE
from tests.integration.measure.sourcing import Make, NoRule, candidate, faulty_target


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AskProfile]:
    """What workers were asked to profile."""
    requests: list[AskProfile] = []
    real = Worker.profile

    def profile(worker: Worker, ask: AskProfile) -> Profiled | Refused | Failed:
        requests.append(ask)
        return real(worker, ask)

    monkeypatch.setattr(Worker, "profile", profile)
    return requests


def profile_of(source: MeasuringCostSource, kernel: CandidateKernel) -> KernelProfile:
    found = source.profile(kernel)
    assert isinstance(found, KernelProfile)
    return found


def test_twins_share_a_profile_that_names_the_nodes_of_each(
    make: Make, graph: DataflowGraph, asked: list[AskProfile]
) -> None:
    source = make()

    first, second = (profile_of(source, candidate(graph, node)) for node in (0, 1))

    assert first.parts == (ProfiledPart(nodes=(graph.names[0],), time_us=9.0, conversion_us=2.0),)
    assert second.parts == (ProfiledPart(nodes=(graph.names[1],), time_us=9.0, conversion_us=2.0),)
    assert [each.name for each in first.unattributed] == ["first in 1 threads"]
    assert len(asked) == 1


def test_a_profile_is_made_once_per_database(make: Make, graph: DataflowGraph, asked: list[AskProfile]) -> None:
    add = candidate(graph, 0)
    assert make().known_profile(add) is None

    made = make().profile(add)

    assert make().known_profile(add) == make().profile(add) == made
    assert len(asked) == 1


def test_the_variant_is_profiled_that_the_cost_stands_for(
    make: Make, graph: DataflowGraph, asked: list[AskProfile]
) -> None:
    source, add = make(), candidate(graph, 0, "second-variant-fast")
    assert profile_of(source, add).unattributed[0].name == "first in 1 threads"

    source.measure([add])

    assert source.variant(add) == "second"
    assert source.known_profile(add) is None
    assert profile_of(source, add).unattributed[0].name == "second in 1 threads"
    assert [ask.variant for ask in asked] == [None, "second"]


@pytest.mark.guards(
    "`collage_profile` raises, hangs, crashes, or names nodes that are not there",
    "the kernel has no profile; a crash is tried twice, anything else once, then remembered in the database",
    area="toolchains",
)
@pytest.mark.parametrize(
    ("mode", "reason", "attempts"),
    [
        ("profiler-raises", "RuntimeError: no trace was written", 1),
        ("profiler-names-another", "the function has no node 'another'", 1),
        ("profiler-hangs", "worker deadline", 1),
        ("profiler-segfaults", "worker crash: killed by SIGSEGV", 2),
    ],
)
def test_a_profiler_that_fails_costs_the_profile_only(
    make: Make, graph: DataflowGraph, asked: list[AskProfile], mode: str, reason: str, attempts: int
) -> None:
    source, add = make(), candidate(graph, 0, mode)

    source.measure([add])
    found = source.profile(add)

    assert isinstance(found, Unsupported)
    assert reason in found.reason
    assert not isinstance(source.cost(add), Unmeasured)
    assert source.rejection(add) is None
    assert len(asked) == attempts


def test_a_failure_is_not_repeated_but_where_there_is_more_time_now(
    make: Make, graph: DataflowGraph, asked: list[AskProfile]
) -> None:
    late, raising = candidate(graph, 0, "profiler-hangs"), candidate(graph, 0, "profiler-raises")
    for source in (make(), make(), make(deadline_s=7200.0)):
        source.profile(late)
        source.profile(raising)

    assert [ask.target for ask in asked] == [late.target, raising.target, late.target]


def test_a_failure_is_of_one_version_of_the_plugin_and_tried_again_on_request(
    make: Make, graph: DataflowGraph, asked: list[AskProfile]
) -> None:
    well, raising = candidate(graph, 0), candidate(graph, 0, "profiler-raises")
    asking = [make(), make(), make(plugin="2"), make(plugin="2"), make(plugin="2", retry_failed=True)]
    for source in asking:
        for _ in range(2):
            source.profile(well)
            source.profile(raising)

    assert [ask.target for ask in asked] == [well.target, *[raising.target] * 3]


def test_a_crash_is_tried_again_in_a_fresh_worker(
    make: Make, graph: DataflowGraph, store: BlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    with WorkerPool([SOURCE], store) as fresh:
        assert isinstance(make(workers=fresh).profile(candidate(graph, 0, "profiler-segfaults-once")), KernelProfile)


def test_a_refusal_is_asked_for_once_per_run(make: Make, graph: DataflowGraph, asked: list[AskProfile]) -> None:
    add = candidate(graph, 0, "profiler-refuses")
    source = make()

    answers = [source.profile(add), source.profile(add), make().profile(add)]

    assert answers == [Unsupported("the library is built without its profiler")] * 3
    assert len(asked) == 2


def test_a_candidate_of_several_nodes_has_all_of_them(make: Make, graph: DataflowGraph) -> None:
    target = faulty_target()
    pair = CandidateKernel(SubGraph(graph, 0b11), FusionSpec(name=target.name, rule=NoRule(), targets=(target,)))

    assert profile_of(make(), pair).parts[0].nodes == graph.names[:2]
