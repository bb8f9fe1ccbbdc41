"""What a plan loses is counted at long-run costs, against the best plan that anybody knows."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.regret.archive import read_archive, write_archive
from benchmarks.regret.known import read_known, write_known
from benchmarks.regret.pages import conclusion, lost, markdown, raced_markdown
from benchmarks.regret.race import judged
from benchmarks.regret.replaying import regret, summary, verdict
from benchmarks.regret.searches import best_known, best_single, described, kept
from benchmarks.regret.work import Work
from benchmarks.replay.bench import Machine
from collage.store import BlobSpace, RecordKey, TuningRecord
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Host
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import GraphBuilder
from tests.engine.exploring import a_target, by_operator, kernel, pool_of, rule_of

COSTS = {"a": {"MatMul": 10.0, "ArgMax": 90.0}, "b": {"MatMul": 60.0, "ArgMax": 5.0}}
A, B = a_target("a"), a_target("b")


def classifier() -> DataflowGraph:
    g = GraphBuilder("classifier")
    return DataflowGraph(g.model(g.op("ArgMax", g.op("MatMul", g.input("x", 4, 4), g.input("y", 4, 4)))))


def measured(graph: DataflowGraph) -> CandidatePool:
    """Each operator alone, and both together, on both targets."""
    parts = [kernel(graph, target, *names) for target in (A, B) for names in ((), *((n,) for n in graph.names))]
    return pool_of(graph, by_operator(COSTS), *parts).pool


def plans(pool: CandidatePool) -> list[Plan]:
    """Each target alone, and the mix."""

    def alone(name: str) -> Plan:
        found = pool.engine().run(lambda chosen: chosen.target == name and chosen.nodes == pool.whole)
        return as_plan(pool, name, found, single=True)

    return [alone("a"), alone("b"), as_plan(pool, "mixed-1", pool.engine().run(), single=False)]


def test_the_best_known_plan_is_the_cheapest_of_all_candidates() -> None:
    pool = measured(classifier())

    best = best_known(pool)

    assert [each["target"] for each in described(best)["kernels"]] == ["a", "b"]
    assert best.predicted_us == 10 + 1 + 5 + 1  # and a microsecond for each launch
    assert best_single(plans(pool), pool).name == "b"


def test_a_search_that_saw_the_mix_keeps_it_and_one_that_did_not_regrets() -> None:
    pool = measured(classifier())
    first, second, mix = plans(pool)
    best = best_known(pool)

    assert regret(kept([first, second, mix], pool), best) == 0
    assert regret(kept([first, second], pool), best) == pytest.approx(66 / 17 - 1)


def test_what_a_search_believed_of_its_plans_does_not_count() -> None:
    """Both plans are priced by the long run, not by what the search was served."""
    graph = classifier()
    pool = measured(graph)
    believed = pool_of(graph, by_operator({"a": COSTS["b"], "b": COSTS["a"]}), *pool).pool
    first, second, _ = plans(believed)

    assert first.predicted_us < second.predicted_us
    assert kept([first, second], pool).name == "b"


def test_a_mix_that_gains_less_than_one_percent_is_not_kept() -> None:
    graph = classifier()
    pool = pool_of(
        graph,
        by_operator({"a": {"MatMul": 500.0, "ArgMax": 500.0}, "b": {"MatMul": 900.0, "ArgMax": 493.0}}),
        *measured(graph),
    ).pool

    assert kept(plans(pool), pool).name == "a"
    assert regret(kept(plans(pool), pool), best_known(pool)) == pytest.approx(1001 / 995 - 1)


def test_a_plan_whose_kernel_was_never_measured_is_not_kept() -> None:
    graph = classifier()
    pool = measured(graph)
    half = pool_of(graph, by_operator(COSTS), *(each for each in pool if each.target == A)).pool

    assert kept(plans(pool), half).name == "a"


def test_known_candidates_are_read_again_for_the_same_graph_only(tmp_path: Path) -> None:
    graph, file = classifier(), tmp_path / "known.json"
    rules = [rule_of(A), rule_of(B)]
    pool = measured(graph)
    labelled = kernel(graph, A, graph.names[0], label="a.pattern")

    assert read_known(file, graph, rules) == []
    write_known(file, graph, [*pool, labelled])

    found = read_known(file, classifier(), rules)
    assert {(each.target.name, each.sub_graph.nodes) for each in found} == {
        (each.target.name, each.sub_graph.nodes) for each in pool
    }
    assert {each.target.name for each in read_known(file, graph, rules[:1])} == {"a"}
    g = GraphBuilder("other")
    assert read_known(file, DataflowGraph(g.model(g.op("Relu", g.input("x", 4)))), rules) == []


def test_an_archive_holds_the_records_and_the_machine_they_are_of(tmp_path: Path) -> None:
    host = Host(
        system="Linux x86_64", cpu="some", physical_cores=4, cpu_flags=frozenset({"avx2", "fma"}), memory_bytes=1 << 30
    )
    machine = Machine(host=host, dispatch_us=0.25)
    key = RecordKey(
        structural_hash="h", target="a", fingerprint="a 1", host=host.fingerprint, threads=4, launch="", timing="t"
    )
    created = "2026-01-01T00:00:00+00:00"
    record = TuningRecord(key=key, outcome="measured", purpose="select", created=created, samples_us=(1.5, 2.0))
    given, taken = Work(tmp_path / "given"), Work(tmp_path / "taken")
    for name in ("r00-x", "r01-y"):
        with given.store(name) as store:
            store.append(dataclasses.replace(record, variant=name))
            store.put_blob(BlobSpace(toolchain="a", fingerprint="a 1"), "k", b"cached")
        given.known(name).write_text('{"graph": "g", "candidates": []}\n')
        given.filled(name).write_text('{"seconds": 1.0}\n')
    file = tmp_path / "records.jsonl.xz"

    write_archive(file, given, ["r00-x", "r01-y"], machine)

    for _ in range(2):  # once more changes nothing
        assert read_archive(file, taken) == machine
    for name in ("r00-x", "r01-y"):
        with taken.store(name) as store:
            assert store.records(key) == (dataclasses.replace(record, variant=name),)
            assert store.blob_keys() == ()
        assert taken.known(name).read_text() == given.known(name).read_text()
        assert taken.filled(name).read_text() == given.filled(name).read_text()


def a_run(regret: float, *, seconds: float = 10.0, draw: int | None = None) -> dict[str, Any]:
    row = {"measured": 3, "fresh": 0, "unknown": 0, "kept": "other" if regret else "best"}
    return {
        "draw": draw,
        "default": {**row, "seconds": seconds, "regret": regret},
        "exhaustive": {**row, "seconds": 40.0, "regret": 0.0},
        "share": seconds / 40,
    }


def a_model(name: str, *regrets: float, seconds: float = 10.0) -> dict[str, Any]:
    runs = [a_run(each, seconds=seconds, draw=number or None) for number, each in enumerate(regrets)]
    best = {"us": 90.0, "kernels": [{"target": "openvino", "operators": "Conv ArgMax"}]}
    other = {"us": 100.0, "kernels": [{"target": "a", "operators": "Relu"}]}
    single = {"target": "onnxruntime", "us": 180.0}
    rest = {"name": name, "operators": 3, "candidates": 12, "best": "best", "single": single, "stake": 0.5}
    return {**rest, "plans": {"best": best, "other": other}, "runs": runs, **summary(runs)}


def test_the_median_replay_decides_and_the_worst_is_bounded() -> None:
    assert summary([a_run(each) for each in (0.0, 0.01, 0.04)]) == {"regret": 0.01, "worst": 0.04, "share": 0.25}
    fine = [a_model(str(number), 0.0, 0.01, 0.04) for number in range(38)]

    assert verdict([*fine, a_model("x", 0.03), a_model("y", 0.03)]) == []
    assert verdict([*fine[1:], *(a_model(name, 0.03) for name in "xyz")]) == ["3 of 40 models lose more than 2%; 2 may"]
    assert verdict([*fine, a_model("x", 0.0, 0.0, 0.06)]) == ["1 lose more than 5% in some replay: x"]
    assert verdict([a_model("x", 0.0, seconds=20.0)]) == [
        "the default search takes 0.50 of the exhaustive one's seconds, median; 0.33 may be"
    ]


def report_of(*models: dict[str, Any]) -> dict[str, Any]:
    host = {"cpu": "some", "cores": 2, "system": "Linux"}
    where = {"host": host, "date": "2026-01-01T00:00:00", "versions": {"python": "3.11"}}
    return {**where, "models": list(models), "failed": verdict(models), "protocol": {"rounds": 9}}


def test_the_page_says_what_was_kept_and_what_was_lost() -> None:
    report = report_of(a_model("r00-x", 0.0, 0.5, 0.5), a_model("r01-y", 0.0))
    json.dumps(report, allow_nan=False)

    page = markdown(report)

    assert "| r00-x | 12 | 40.0 | 10.0 | 0.25 | 0.18 ort | 0.09 (0.50) | ov 2 ..ArgMax |" in page
    assert "a Relu (1 of 3 the best) | 50.0% | 50.0% | 0.0% |" in page
    assert "| the best | 0.0% | 0.0% | 0.0% |" in page
    assert conclusion(report) in page
    assert "Within 2% of the best known plan on 1 of 2 models" in page
    assert "is within 2% on 2." in page
    assert "not in the databases" not in page
    report["models"][0]["runs"][0]["default"]["unknown"] = 2
    assert "Candidates that searches asked for 2 times are not in the databases" in conclusion(report)


def a_race(name: str, verdict: str) -> dict[str, Any]:
    judged = [{"name": "openvino", "latency_ms": {"p50": 3.0}}, {"name": "default", "latency_ms": {"p50": 2.5}}]
    rest = {"judged": judged, "best_single": "openvino", "verdict": verdict}
    return {"name": name, "ratio": 1.0, "ci95": [0.99, 1.01], **rest}


def test_an_interval_decides_only_if_it_is_narrow() -> None:
    assert judged(0.99, 1.01) == "within"
    assert judged(1.00, 1.05) == "undecided"
    assert judged(0.90, 1.01) == "not measured"
    assert judged(1.03, 1.20) == "lost"


def test_a_lost_race_fails_and_two_may_be_undecided() -> None:
    fine = [a_race("a", "within"), a_race("b", "the same plan"), a_race("c", "undecided"), a_race("d", "not measured")]

    assert lost(fine) == []
    assert lost([*fine, a_race("e", "undecided")]) == ["undecided on 3, 2 may be: c, e, d"]
    assert lost([*fine, a_race("e", "lost")]) == ["lost: e"]
    page = raced_markdown({**report_of(a_model("x", 0.0)), "models": fine})
    assert "| a | openvino | 3.00 | 2.50 |  | 1.000 | 0.990 to 1.010 | within |" in page
