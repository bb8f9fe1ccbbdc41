"""Which fused groups are listed, and what a race of them is held to."""

from __future__ import annotations

from typing import Any

from benchmarks.fused_groups.__main__ import failed
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
