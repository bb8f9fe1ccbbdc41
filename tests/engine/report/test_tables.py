"""Tables as a file of 100 columns shows them."""

from __future__ import annotations

import dataclasses
import io

from rich.console import Console, RenderableType

from collage.report.documents.codec import record_from_document, to_jsonable
from collage.report.facts.record import AlternativeFacts, AsCalledFacts, RegionFacts
from collage.report.facts.search_facts import CompatibleSetFacts
from collage.report.text.coverage import coverage_lines
from collage.report.text.tables import (
    comparison_table,
    optimize_summary,
    refusals_table,
    regions_table,
    search_lines,
)
from collage_core.candidates.refusals import Remembered
from tests.engine.report.records import COMPARISON, ESTIMATED, RECORD, with_plan


def shown(table: RenderableType, width: int = 100) -> str:
    """The table without spaces at the ends of lines, and without empty lines around it."""
    stream = io.StringIO()
    Console(file=stream, width=width, markup=False, highlight=False).print(table)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()).strip("\n")


def test_contenders_stand_side_by_side_and_a_failure_says_why() -> None:
    assert shown(comparison_table(COMPARISON)) == GOLDEN_COMPARISON.strip("\n")


def test_runs_as_users_call_them_stand_in_a_table_below() -> None:
    mixed, single, *others = COMPARISON.contenders
    assert mixed.latency_ms is not None
    assert single.latency_ms is not None
    called = AsCalledFacts(latency_ms=single.latency_ms, ratio=1.22, ratio_ci95=(1.2, 1.23))
    best = AsCalledFacts(latency_ms=mixed.latency_ms, ratio=1.0, ratio_ci95=(1.0, 1.0))
    contenders = (
        dataclasses.replace(mixed, as_called=called),
        dataclasses.replace(single, as_called=best),
        *others,
    )

    comparison = dataclasses.replace(COMPARISON, contenders=contenders, best_single_as_called="onnxruntime")

    text = shown(comparison_table(comparison))
    assert "as users call it" in text
    assert "160.0" in text
    assert "1.22" in text
    assert "ratio: to onnxruntime, the best single toolchain so" in text


def test_what_is_computed_in_lower_precision_is_marked() -> None:
    mixed, *others = COMPARISON.contenders

    text = shown(
        comparison_table(dataclasses.replace(COMPARISON, contenders=(dataclasses.replace(mixed, exact=False), *others)))
    )

    assert "\n collage *  " in text
    assert "*: not in the model's own types throughout" in text
    assert "*" not in shown(comparison_table(COMPARISON))


def test_a_narrow_terminal_leaves_out_columns_and_keeps_names_and_figures() -> None:
    text = shown(comparison_table(COMPARISON), width=80)

    assert all(figure in text for figure in ("95.04-96.96", "0.651-0.664", "158.4-161.6"))
    assert "openvino(precision=bf16)" in text
    assert "toolchains" not in text


def test_regions_show_predicted_and_measured_time_and_share() -> None:
    assert shown(regions_table(RECORD)) == GOLDEN_REGIONS.strip("\n")


def test_of_many_regions_the_costliest_are_listed_and_the_rest_summed() -> None:
    assert shown(regions_table(RECORD, limit=1)) == GOLDEN_REGIONS_SHORT.strip("\n")


def test_a_plan_that_was_not_profiled_shows_predicted_shares() -> None:
    regions = tuple(dataclasses.replace(region, measured_us=None) for region in RECORD.regions)

    text = shown(regions_table(dataclasses.replace(RECORD, regions=regions)))

    assert "52,340            -   59.3 %" in text


def test_a_region_that_was_not_profiled_has_its_predicted_share_beside_others() -> None:
    first, *others = RECORD.regions
    regions = (dataclasses.replace(first, measured_us=None), *others)

    text = shown(regions_table(dataclasses.replace(RECORD, regions=regions)))

    assert "52,340            -   57.6 %" in text


def test_refusals_are_grouped_and_brackets_are_text() -> None:
    text = shown(refusals_table(RECORD.refusals))

    assert "Resize 'cubic' [NHWC]" in text
    assert "Cast to 'int2' is not there (and 1 like it)" in text


def test_refusals_left_out_are_counted() -> None:
    assert shown(refusals_table(RECORD.refusals, limit=1)).endswith("2 more reasons; -v lists all")


def test_it_is_said_how_to_retry_what_is_known_from_earlier_runs() -> None:
    known = Remembered(since="2026-01-02T03:04:05+00:00", plugin="collage-openvino 1.0")
    refusals = [dataclasses.replace(each, remembered=known) for each in RECORD.refusals]

    text = shown(refusals_table(refusals, limit=1))

    assert " ".join(text.split()).endswith("by --retry-failed")
    assert "--retry-failed" not in shown(refusals_table(RECORD.refusals))


def test_a_toolchain_that_got_little_is_named_with_the_reason() -> None:
    assert coverage_lines(RECORD) == (
        "openvino took 1 of 13 nodes: it refuses 2 (Cast to 'int2' is not there (and 1 like it)); "
        "the other 10 it accepts went to onnxruntime",
        "not usable here: tensorrt (no NVIDIA device); `collage doctor` says more",
    )


def test_regions_show_their_share_of_the_machine_s_peak_and_mark_one_above_it() -> None:
    assert shown(regions_table(ESTIMATED), width=104) == GOLDEN_REGIONS_ESTIMATED.strip("\n")


def test_a_table_without_a_share_above_the_peak_needs_no_remark() -> None:
    calm = dataclasses.replace(ESTIMATED, regions=ESTIMATED.regions[:1])

    assert "*" not in shown(regions_table(calm))
    assert "of peak" not in shown(regions_table(RECORD))


def test_the_search_is_named_and_certainty_is_a_line_of_its_own() -> None:
    assert search_lines(RECORD.search)[0] == "search exact, 2 rounds"
    assert "headroom among the candidates: none" in shown(optimize_summary(RECORD))


def test_the_summary_holds_everything_a_user_asks_for() -> None:
    text = shown(optimize_summary(RECORD))

    for part in (
        "0.657",
        "predicted 88.25 ms",
        "openvino took 1 of 13 nodes",
        "refused by",
        "measured now 20, known from the tuning database 11",
        "largest output error 4.5e-06",
        "not independently checked: backbone/node_3",
        RECORD.decision,
    ):
        assert part in text


def test_a_prediction_that_is_far_off_is_pointed_out_in_the_summary() -> None:
    text = shown(optimize_summary(with_plan(110.0, 110.0)), width=200)

    assert "was predicted to take 88.25 ms and takes 110.0 ms (+24.6 %)" in text
    assert "is off by more than" not in shown(optimize_summary(RECORD))


def test_long_plans_are_listed_whole_only_when_asked() -> None:
    region = RegionFacts(
        id="",
        toolchain="a",
        target="a",
        composite="",
        nodes=("n",),
        operators=("Add",),
        cost_us=1.0,
        alternatives=(AlternativeFacts(target="b", cost_us=None, reason="no"),),
    )
    many = dataclasses.replace(
        RECORD, regions=tuple(dataclasses.replace(region, id=f"k{i:04}", cost_us=1.0 + i) for i in range(40))
    )

    assert "k0000" not in shown(optimize_summary(many))
    assert "24 kernels more" in shown(optimize_summary(many))
    assert "k0000" in shown(optimize_summary(many, everything=True))


def test_a_model_without_kernels_is_refused_by_nobody() -> None:
    nothing = [dataclasses.replace(each, claimed_nodes=0, chosen_nodes=0) for each in RECORD.toolchains]

    lines = coverage_lines(dataclasses.replace(RECORD, regions=(), toolchains=tuple(nothing)))

    assert not any("refuses" in line for line in lines)


GOLDEN_COMPARISON = """
 contender                 kind    toolchains   kernels  p50 ms      95 % CI  ratio      95 % CI
 ───────────────────────────────────────────────────────────────────────────────────────────────
 collage                   mixed   openvino,          3   96.00  95.04-96.96  0.657  0.651-0.664
                                   onnxruntime
 onnxruntime               single  onnxruntime        1   160.0  158.4-161.6  1.096    1.08-1.11
 openvino                  single  openvino           1   146.0  144.5-147.5  1.000    1.00-1.00
 openvino(precision=bf16)  single  openvino           -  failed

ratio: to openvino, the best single toolchain; over rounds in which both ran, or each with a third,
so not quite the quotient of the medians above
openvino(precision=bf16) failed: output 'labels' is off by 4.1 % of its scale; 0.1 % is allowed
"""

GOLDEN_REGIONS = """
 kernel  target       operators                         nodes  predicted us  measured us    share
 ────────────────────────────────────────────────────────────────────────────────────────────────
 k0000   onnxruntime  Conv+Relu x3, Concat+Conv+Resize      9        52,340       57,100   59.8 %
 k0001   openvino     ArgMax                                1        35,800       38,350   40.1 %
 k0002   onnxruntime  Cast+Mul+Add                          3         110.0        112.2    0.1 %

 total                3 kernels                            13        88,250       95,563  100.0 %
"""

GOLDEN_REGIONS_ESTIMATED = """
 kernel  target       operators                      nodes  predicted us  measured us    share  of peak
 ──────────────────────────────────────────────────────────────────────────────────────────────────────
 k0000   onnxruntime  Conv+Relu x3,                      9        52,340       57,100   59.8 %     80 %
                      Concat+Conv+Resize
 k0001   openvino     ArgMax                             1        35,800       38,350   40.1 %  150 % *
 k0002   onnxruntime  Cast+Mul+Add                       3         110.0        112.2    0.1 %      1 %

 total                3 kernels                         13        88,250       95,563  100.0 %     81 %

*: above 100 % it needs fewer operations than counted, as Winograd's convolution does, or moves bytes
faster than was measured
"""

GOLDEN_REGIONS_SHORT = """
 kernel  target       operators                         nodes  predicted us  measured us    share
 ────────────────────────────────────────────────────────────────────────────────────────────────
 k0000   onnxruntime  Conv+Relu x3, Concat+Conv+Resize      9        52,340       57,100   59.8 %
 ...                  2 kernels more                        4        35,910       38,463   40.2 %

 total                3 kernels                            13        88,250       95,563  100.0 %
"""


def test_where_targets_exclude_each_other_the_best_plan_of_each_set_is_told() -> None:
    sets = (
        CompatibleSetFacts(targets=("a", "b"), predicted_ms=1.5, used=("b",)),
        CompatibleSetFacts(targets=("a", "c"), predicted_ms=None),
    )
    record = dataclasses.replace(RECORD, search=dataclasses.replace(RECORD.search, compatible_sets=sets))

    [line] = [each for each in search_lines(record.search) if "exclude" in each]

    assert line.endswith("{a, b}: 1.500 ms predicted, by b; {a, c}: none covers the model")
    assert record_from_document(to_jsonable(record)) == record
