"""Failures count for the version of the plugin that failed; times until this version has its own."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collage.store import Outcome, Purpose, RecordKey, TuningRecord, applicable

KEY = RecordKey(structural_hash="h", target="t", fingerprint="f", host="c", threads=2, launch="eager", timing="t")


def record(what: str, number: int = 0) -> TuningRecord:
    """A record from text such as `old select measured`; the number tells equal ones apart."""
    plugin, purpose, outcome = what.split()
    return TuningRecord(
        key=dataclasses.replace(KEY, plugin=plugin),
        outcome=outcome,  # type: ignore[arg-type]
        purpose=purpose,  # type: ignore[arg-type]
        created="2026-01-01T00:00:00+00:00",
        samples_us=(1.0 + number,) if outcome == "measured" else (),
        reason="" if outcome == "measured" else f"reason {number}",
    )


def failed(each: TuningRecord) -> bool:
    return each.outcome != "measured"


@pytest.mark.parametrize(
    ("records", "counting"),
    [
        (["old select failed"], []),
        (["old select refused"], []),
        (["now select failed"], [0]),
        (["old select measured"], [0]),
        (["old select measured", "older select measured"], [1]),
        (["old select measured", "now select measured"], [1]),
        (["now select measured", "old select measured"], [0]),
        (["old select failed", "now select measured"], [1]),
        (["old select measured", "now select failed"], [1]),
        (["old select measured", "old confirm failed"], [0]),
        (["old select measured", "old confirm measured"], [0, 1]),
        (["old select measured", "old confirm measured", "now confirm measured"], [0, 2]),
        (["old select measured", "now confirm failed"], [0, 1]),
    ],
)
def test_what_counts(records: list[str], counting: list[int]) -> None:
    made = [record(what, number) for number, what in enumerate(records)]

    assert applicable(made, "now", failed) == [made[number] for number in counting]


KINDS = st.builds(
    " ".join,
    st.tuples(
        st.sampled_from(["now", "old", "older"]), st.sampled_from(get_args(Purpose)), st.sampled_from(get_args(Outcome))
    ),
)


@given(st.lists(KINDS, max_size=8))
def test_this_version_s_own_count_and_no_failure_of_another_does(kinds: list[str]) -> None:
    made = [record(what, number) for number, what in enumerate(kinds)]

    found = applicable(made, "now", failed)

    assert [each for each in found if each.key.plugin == "now"] == [each for each in made if each.key.plugin == "now"]
    assert not any(failed(each) and each.key.plugin != "now" for each in found)
    for purpose in get_args(Purpose):
        assert len({each.key.plugin for each in found if each.purpose == purpose}) <= 1
    assert found == [each for each in made if each in found]
