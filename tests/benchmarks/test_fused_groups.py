"""Which fused groups are listed, and what a race of them is held to."""

from __future__ import annotations

from typing import Any

from benchmarks.fused_groups.__main__ import failed, race_page
from benchmarks.fused_groups.listing import Group, chosen


def group(name: str, kind: str, unfused_ms: float, structure: str = "") -> Group:
    return Group(model="m", name=name, kind=kind, nodes=(name,), structure=structure or name, unfused_ms=unfused_ms)


def row(ratio: float, half_width: float, kind: str = "Relu LRN") -> dict[str, Any]:
    return {"name": "g", "kind": kind, "ratio": ratio, "ci95": [ratio - half_width, ratio + half_width]}


def test_groups_with_most_time_come_first_and_few_of_a_kind() -> None:
    groups = [group(f"a{number}", "Add Relu", 10.0 - number) for number in range(4)] + [group("b", "Mul Add", 1.0)]
    assert [each.name for each in chosen(groups, count=3, of_a_kind=2)] == ["a0", "a1", "b"]


def test_what_computes_the_same_is_listed_once() -> None:
    groups = [group("a", "Add Relu", 2.0, "same"), group("b", "Add Relu", 3.0, "same")]
    assert [each.name for each in chosen(groups)] == ["b"]


def test_a_race_holds_with_enough_groups_below_one_and_a_half() -> None:
    assert failed([row(0.4, 0.01)] * 8 + [row(0.9, 0.01)] * 22) == []
    assert len(failed([row(0.4, 0.01)] * 7 + [row(0.9, 0.01)] * 22)) == 2


def test_a_wide_interval_counts_for_none() -> None:
    assert len(failed([row(0.4, 0.04)] * 40)) == 2


def test_an_upsampling_with_arg_max_has_a_limit_of_its_own() -> None:
    [said] = failed([row(0.4, 0.01)] * 30 + [row(0.45, 0.01, "Resize ArgMax")])
    assert "at most 0.4" in said


def test_the_page_says_where_more_rounds_were_taken() -> None:
    usual = {"rounds": 40, "patience": 3, "half_width": 0.02, "process_rounds": 12}
    times = {"best": "openvino", "times_ms": {"openvino": 2.0, "halide": 1.0}}
    rows = [
        {**row(0.5, 0.01), **times, "model": "m", "protocol": {**usual, "patience": patience}}
        for patience in (3, 14, 3)
    ]
    environment = {"date": "2026-01-01T00:00:00+00:00", "host": {"cpu": "c", "cores": 2, "system": "s"}, "versions": {}}
    page = race_page({**environment, "threads": 2, "groups": rows, "errors": {}, "failed": []})

    assert "or up to 120 until ratios are known to 2% to each side" in page
    assert "(of some groups: 40 rounds, 12 to a process, or up to 560 until" in page
