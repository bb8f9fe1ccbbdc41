from __future__ import annotations

import dataclasses

from collage.report.text.refusal_groups import group_refusals
from collage_core.candidates.refusals import Refusal, Remembered


def refusal(target: str, node: str, reason: str, stage: str = "predicate") -> Refusal:
    return Refusal(target=target, stage=stage, nodes=(node,), reason=reason)


def test_reasons_that_differ_in_numbers_and_names_are_one() -> None:
    groups = group_refusals(
        [
            refusal("cublas", "mm_1", "k=31 is not a multiple of 8"),
            refusal("cublas", "mm_2", "k=30 is not a multiple of 8"),
            refusal("cublas", "mm_3", "k=30 is not a multiple of 8"),
            refusal("cublas", "add", "there is no rule for Add"),
        ]
    )

    assert [(group.text, group.refusals, group.nodes) for group in groups] == [
        ("k=30 is not a multiple of 8 (and 1 like it)", 3, ("mm_1", "mm_2", "mm_3")),
        ("there is no rule for Add", 1, ("add",)),
    ]


def test_targets_and_stages_are_kept_apart() -> None:
    groups = group_refusals([refusal("b", "n", "no"), refusal("a", "n", "no"), refusal("a", "n", "no", stage="lower")])

    assert [(group.target, group.stage) for group in groups] == [("a", "lower"), ("a", "predicate"), ("b", "predicate")]


def test_a_node_refused_twice_counts_once() -> None:
    [group] = group_refusals([refusal("a", "n", "x 1"), refusal("a", "n", "x 2")])

    assert (group.refusals, group.nodes) == (2, ("n",))


def test_what_is_remembered_says_since_when_and_with_which_version() -> None:
    fresh = refusal("a", "n", "x 1")
    old, older = (
        dataclasses.replace(fresh, remembered=Remembered(since=since, plugin=f"p {number}"))
        for number, since in ((2, "2026-01-03T00:00:00+00:00"), (1, "2026-01-03T00:00:00+02:00"))
    )

    assert [group.text for group in group_refusals([fresh, old, older])] == ["x 1; known since 2026-01-03 with p 1"]
    assert [group.text for group in group_refusals([fresh])] == ["x 1"]
