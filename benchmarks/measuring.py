"""Check how far one measurement of a kernel can be trusted: measure fifty kernels twenty times each.

Usage:
    python -m benchmarks.measuring --work DIR [--results FILE.json] [--kernels N] [--times N]

Kernels of generated models (`benchmarks.regret`), spread evenly over what they cost, are measured as users' are, all of
them in every round, so that measurements of one are minutes apart. The long-run cost of a kernel is the median over its
measurements. Each measurement also gives an interval. The share of intervals that contain the long-run cost is the
coverage. Both are computed of the same samples in three ways: with all samples of a measurement as if they were
independent; with the medians of its blocks, brought to the machine's usual speed by the calibration kernel; and as
reports have them, by how far apart two measurements of one kernel are, which the first two of each kernel say.

Exits with 1 if the intervals of reports contain the long-run cost less often than wanted.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.regret.generator import all_grafted
from benchmarks.regret.searches import DEFAULT
from benchmarks.replay.bench import Bench
from collage.measure.driver.repeats import Repeats
from collage.measure.driver.source import MeasuringCostSource
from collage.measure.statistics import median_interval
from collage.report.progress import SilentProgress
from collage.setup.settings import candidate_bounds
from collage.store import TuningRecord, block_times_us
from collage.store.memory import MemoryStore
from collage_core.candidates.all_proposals import propose_all
from collage_core.fusion import CandidateKernel

MODELS: Final = (
    "r00-camera-squeezenet-stem-bilinear-argmax",
    "r03-squeezenet-bilinear-softmax",
    "r06-inception-grid-sample",
    "r13-conv3d-stem-gru",
    "r19-vit-codebook-lookup",
)
COVERED: Final = 0.85
"""Share of the intervals that have to contain the long-run cost."""

Values: TypeAlias = Callable[[TuningRecord, float | None], Sequence[float]]

WAYS: Final[Mapping[str, Values]] = {
    "samples": lambda record, usual_us: record.samples_us,
    "normalised blocks": lambda record, usual_us: block_times_us(record.samples_us, record.blocks, usual_us),
}
"""What a measurement is reduced to before its median and interval are taken."""
REPORTED: Final = "reports"
"""The way of reports: an interval around the median of the normalised blocks, by what other measurements say."""
_TWO: Final = 2


def judged(records: Sequence[TuningRecord], usual_us: float | None, values: Values) -> dict[str, float]:
    """Return how measurements of one kernel agree, as JSON.

    Args:
        records: Its measurements.
        usual_us: What the calibration kernel usually takes.
        values: What a measurement is reduced to.

    Returns:
        `us`, the long-run cost; `covered`, the share of intervals that contain it; `half_width`, the median of half
        their width and `off`, the median distance of a cost, both relative to it.
    """
    intervals = [median_interval(values(record, usual_us)) for record in records]
    long_run = statistics.median(each.value for each in intervals)
    return {
        "us": long_run,
        "covered": statistics.fmean(each.low <= long_run <= each.high for each in intervals),
        "half_width": statistics.median((each.high - each.low) / 2 for each in intervals) / long_run,
        "off": statistics.median(abs(each.value - long_run) for each in intervals) / long_run,
    }


def with_reported(kernels: Sequence[dict[str, Any]]) -> None:
    """Add the intervals that reports give, of all measurements but the first two, which are what is known before.

    Args:
        kernels: Results with all costs of each kernel; they are changed.
    """
    known = Repeats()
    for kernel in kernels:
        for before_us, after_us in itertools.pairwise(kernel["costs_us"][:_TWO]):
            known = known.adding(before_us, after_us)
    for kernel in kernels:
        normalised = kernel["ways"]["normalised blocks"]
        intervals = [known.interval(cost_us) for cost_us in kernel["costs_us"][_TWO:]]
        found = [each for each in intervals if each is not None]
        long_run = statistics.median(kernel["costs_us"])
        kernel["ways"][REPORTED] = {
            "us": long_run,
            "covered": statistics.fmean(low <= long_run <= high for low, high in found) if found else 0.0,
            "half_width": statistics.median((high - low) / 2 for low, high in found) / long_run if found else 0.0,
            "off": normalised["off"],
        }


def kernels_of(bench: Bench, source: MeasuringCostSource, count: int) -> list[CandidateKernel]:
    """Measure a model's candidates once; return as many as wanted, from cheap to dear in equal steps."""
    proposals = propose_all(bench.rules, bench.workload.graph, candidate_bounds(DEFAULT), cuts=None)
    candidates = {source.record_key(each): each for each in proposals.candidates}
    chosen = sorted(candidates.values(), key=lambda each: (each.sub_graph.nodes, each.target.name))
    step = max(1, len(chosen) // (3 * count))
    source.measure(chosen[::step])
    costs = {source.cost(each): each for each in chosen[::step] if source.medians_us(each)}
    ordered = [costs[cost] for cost in sorted(cost for cost in costs if isinstance(cost, float))]
    return [ordered[round(at * (len(ordered) - 1) / max(1, count - 1))] for at in range(min(count, len(ordered)))]


def measured(work: Path, kernels: int, times: int) -> list[dict[str, Any]]:
    """Measure kernels of all models in rounds; return how the measurements of each agree."""
    grafted = all_grafted()
    with contextlib.ExitStack() as stack:
        cases: list[tuple[str, MeasuringCostSource, CandidateKernel]] = []
        for name in MODELS:
            path = work / f"{name}.onnx"
            if not path.is_file():
                grafted[name].write(work)
            bench = stack.enter_context(Bench(path, DEFAULT, work, SilentProgress()))
            source = bench.source(MemoryStore())
            share = max(1, kernels // len(MODELS))
            cases += [(name, source, each) for each in kernels_of(bench, source, share)]
            print(f"{name}: {share} kernels", flush=True)
        for turn in range(times):
            for _, source, kernel in cases:
                source.measure([kernel], "confirm")
            print(f"round {turn + 1} of {times}", flush=True)
        found = [_result(name, source, kernel) for name, source, kernel in cases]
        with_reported(found)
        return found


def _result(name: str, source: MeasuringCostSource, kernel: CandidateKernel) -> dict[str, Any]:
    records = [record for record in source.usable(kernel) if record.purpose == "confirm" and record.samples_us]
    return {
        "model": name,
        "target": kernel.target.name,
        "nodes": list(kernel.sub_graph.names),
        "times": len(records),
        "costs_us": [
            statistics.median(block_times_us(record.samples_us, record.blocks, source.usual_calibration_us))
            for record in records
        ],
        "ways": {way: judged(records, source.usual_calibration_us, values) for way, values in WAYS.items()},
    }


def summary(kernels: Sequence[Mapping[str, Any]], way: str) -> dict[str, float]:
    """Return mean coverage and the medians of the other figures."""
    of = [kernel["ways"][way] for kernel in kernels]
    return {
        "covered": statistics.fmean(each["covered"] for each in of),
        "half_width": statistics.median(each["half_width"] for each in of),
        "off": statistics.median(each["off"] for each in of),
    }


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    kernels = report["kernels"]
    ways = [way for way in (*WAYS, REPORTED) if way in kernels[0]["ways"]]
    how = (
        f"{len(kernels)} kernels, each measured {report['times']} times with the default preset, all in every round. "
        "Intervals are at 95 %, of one measurement. Covered is the share of them that contain the long-run cost, "
        "half-width half their width and off the distance of one cost, both relative to it and medians."
    )
    if REPORTED in ways:
        how += " Intervals of reports go by how far apart the first two measurements of each kernel are."
    lines = head("How far one measurement can be trusted", report["environment"], how, "one process a toolchain")
    rows = []
    for way in ways:
        of = summary(kernels, way)
        rows.append((way, f"{of['covered']:.1%}", f"{of['half_width']:.2%}", f"{of['off']:.2%}"))
    lines += lines_of(("interval of", "covered", "half-width", "off"), rows)
    headings = (
        "model",
        "target",
        "nodes",
        "us",
        *(f"{figure}, {way}" for way in WAYS for figure in ("covered", "off")),
        *(f"covered, {way}" for way in ways if way not in WAYS),
    )
    rows = [
        (
            kernel["model"],
            kernel["target"],
            str(len(kernel["nodes"])),
            f"{kernel['ways']['normalised blocks']['us']:.1f}",
            *(
                f"{kernel['ways'][way][figure]:.0%}" if figure == "covered" else f"{kernel['ways'][way][figure]:.1%}"
                for way in WAYS
                for figure in ("covered", "off")
            ),
            *(f"{kernel['ways'][way]['covered']:.0%}" for way in ways if way not in WAYS),
        )
        for kernel in kernels
    ]
    return "\n".join([*lines, "", *lines_of(headings, rows)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return 1 if too few intervals contain the long-run cost."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.measuring", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("demo-out/measuring"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--kernels", type=int, default=50, metavar="N", help="of all models together")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="measurements of each")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    kernels = measured(options.work, options.kernels, options.times)
    report = {"schema_version": 1, "environment": environment(), "times": options.times, "kernels": kernels}
    if options.results:
        written(options.results, json.loads(json.dumps(report)), markdown(report), options.note, afresh=True)
    for way in (*WAYS, REPORTED):
        print(way, json.dumps(summary(kernels, way)), flush=True)
    return 0 if summary(kernels, REPORTED)["covered"] >= COVERED else 1


if __name__ == "__main__":
    sys.exit(main())
