"""How much better a plan could be: what candidates are known to allow, and what the machine allows by estimate."""

from __future__ import annotations

import dataclasses
import math

import pytest

from collage.report.documents.codec import record_from_document, to_jsonable
from collage.report.facts.machine_facts import LimitFacts
from collage.report.facts.record import Record
from collage.report.text.explanation import explain
from collage.report.text.headroom import headroom_lines
from tests.engine.report.records import ESTIMATED, MACHINE, RECORD, limit


def searched(**facts: object) -> Record:
    search = dataclasses.replace(RECORD.search, **{"method": "lazy", "exact": False, "unmeasured": 24, **facts})  # type: ignore[arg-type]
    return dataclasses.replace(RECORD, search=search)


def candidates_line(record: Record) -> str:
    return headroom_lines(record)[0].removeprefix("headroom among the candidates: ")


def machine_line(record: Record) -> str:
    return headroom_lines(record)[1].removeprefix("headroom on this machine: ")


def test_an_exact_search_leaves_nothing_among_the_candidates() -> None:
    exact = searched(exact=True, bound_us=88_250.0)

    assert candidates_line(exact) == "none; no cheaper plan exists among them, at these costs (exact)"
    assert exact.headroom == 0.0


def test_where_a_race_kept_another_plan_than_the_cheapest_the_distance_is_said() -> None:
    line = candidates_line(searched(exact=True, method="exact", bound_us=88_250.0 * 0.97))

    assert line.startswith("3.0 % of the predicted time, to the cheapest plan of them")
    assert line.endswith("times end to end decided")


def test_a_bound_that_helps_is_a_share_and_a_time_and_says_what_to_do() -> None:
    line = candidates_line(searched(gap_us=1765.0, bound_us=88_250.0 - 1765.0))

    assert line == (
        "at most 2.0 % (1,765 us) of the predicted time: 24 of 31 candidates have no measurement; "
        "`--search exact` measures more of them"
    )


def test_a_search_that_ended_at_its_limit_says_so_and_advises_no_other() -> None:
    line = candidates_line(searched(method="beam", unmeasured=0, gap_us=1765.0, bound_us=88_250.0 - 1765.0))

    assert line == "at most 2.0 % (1,765 us) of the predicted time: the exact search ended at its limit of states"


def test_of_lower_precision_nothing_is_claimed() -> None:
    record = searched(exact=True, bound_us=88_250.0)
    kept, *others = record.comparison.contenders
    comparison = dataclasses.replace(record.comparison, contenders=(dataclasses.replace(kept, exact=False), *others))

    assert candidates_line(dataclasses.replace(record, comparison=comparison)).startswith("not known: kernels of lower")


def test_a_bound_that_rules_out_next_to_nothing_is_not_given_as_a_figure() -> None:
    """A plan of 180,900 us of which a plan cheaper by up to 179,901 us may exist."""
    record = dataclasses.replace(searched(gap_us=179_901.0, bound_us=999.0), predicted_ms=180.9)

    line = candidates_line(record)

    assert line.startswith("not known: 24 of 31 candidates have no measurement, so next to nothing is ruled out")
    assert "179,901" not in "".join(headroom_lines(record))


def test_an_exact_search_is_not_advised_to_run_itself() -> None:
    assert "--search" not in candidates_line(searched(method="exact", gap_us=1765.0, bound_us=80_000.0))


def test_a_plan_that_was_given_claims_nothing() -> None:
    given = searched(method="given", rounds=0, gap_us=math.inf)

    assert candidates_line(given) == "not known: the plan was given, nothing else was measured"
    assert given.headroom is None


def test_the_estimate_says_what_is_left_of_which_peak_and_what_it_is_made_of() -> None:
    assert machine_line(ESTIMATED) == (
        "19 % by estimate; this plan runs at 81 % of the machine's peak in float32 "
        "(96.00 ms; at least 77.76 ms for 11.7 GFLOP in float32 and 3.0 MiB)"
    )


def test_an_estimate_bound_by_memory_names_the_level() -> None:
    moved = dataclasses.replace(ESTIMATED, limit=limit(48_000.0, bound_by="memory"))

    assert "runs at 50 % of the machine's memory bandwidth" in machine_line(moved)


def test_above_the_peak_nothing_is_claimed_and_the_reason_is_given() -> None:
    line = machine_line(dataclasses.replace(ESTIMATED, limit=limit(105_600.0)))

    assert line.startswith("not known; this plan runs at 110 % of the machine's peak in float32")
    assert "as Winograd's convolution does" in line


def test_a_plan_that_was_not_timed_is_held_against_its_prediction() -> None:
    untimed = dataclasses.replace(ESTIMATED, measured_ms=None)

    assert untimed.share_of_peak == pytest.approx(77.76 / 88.25)


@pytest.mark.parametrize(
    ("unknown", "why"),
    [
        (
            LimitFacts(not_estimated="the peaks of cuda:0 are not measured, only those of the CPU"),
            "the peaks of cuda:0",
        ),
        (LimitFacts(not_estimated="the speed of memory is not known"), "memory is not known; it took longer than 60 s"),
        (None, "it took longer than 60 s"),
    ],
)
def test_without_an_estimate_the_reason_is_given(unknown: LimitFacts | None, why: str) -> None:
    missing = dataclasses.replace(MACHINE, missing="it took longer than 60 s")

    line = machine_line(dataclasses.replace(ESTIMATED, machine=missing, limit=unknown))

    assert line.startswith("not estimated: ")
    assert why in line


def test_an_estimate_makes_no_search_exact() -> None:
    perfect = dataclasses.replace(searched(gap_us=math.inf), machine=MACHINE, limit=limit(96_000.0))

    assert perfect.share_of_peak == 1.0
    assert not perfect.search.exact
    assert "exact)" not in "".join(headroom_lines(perfect))


def test_each_region_is_explained_by_what_the_machine_allows_it() -> None:
    text = " ".join(explain(ESTIMATED).split())

    assert "by estimate at 80 % of the machine's peak in float32: at least 45,680 us for 6.85 GFLOP in float32" in text
    assert "by estimate at 150 % of the machine's peak in float32" in text
    assert "by estimate at 1 % of the machine's memory bandwidth: at least 1.5 us for" in text
    assert "and 3.0 MiB; Cast not counted" in text


def test_the_peaks_are_listed_with_who_reached_them() -> None:
    text = " ".join(explain(ESTIMATED).split())

    assert "with 2 threads: float32 150 GFLOP/s (a product by openvino); L2 (2.0 MiB) 200 GB/s, memory 10 GB/s" in text
    assert "It proves nothing" in text
    assert "measured peaks" not in explain(RECORD)


def test_a_region_on_another_device_is_not_estimated() -> None:
    elsewhere = LimitFacts(not_estimated="the peaks of cuda:0 are not measured, only those of the CPU")
    regions = (dataclasses.replace(RECORD.regions[0], limit=elsewhere),)

    text = " ".join(explain(dataclasses.replace(ESTIMATED, regions=regions)).split())

    assert "what the machine allows is not estimated: the peaks of cuda:0 are not measured" in text


def test_the_record_keeps_the_estimate_as_facts() -> None:
    assert record_from_document(to_jsonable(ESTIMATED)) == ESTIMATED
