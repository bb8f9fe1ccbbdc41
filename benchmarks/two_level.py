"""Measure the gain of the second level: `--search two-level` against its own start, over the suite, timed afresh.

Usage:
    python -m benchmarks.two_level [NAME...] --work DIR [--results FILE.json] [--preset P] [--rounds N]
        [--note TEXT] [--mock]

Each model is optimized twice over one tuning database: with `--search lazy`, whose plan is the start, and
with `--search two-level`, which does the same and continues. Both packages are then timed in fresh
processes by `collage bench`, interleaved, and the interval of their ratio decides: below 1 a gain, with 1
inside no gain, above 1 a failure, since it must never be worse than its start. Where the package is the
same there is nothing to time. Models that are in the results already are not run again, so an interrupted
run resumes. Files that `benchmarks.suite` left in DIR are used: its packages are the starts, its database
has their measurements.

`--mock` compares hill climbing with a population on synthetic latencies instead: no toolchain, no clock.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.all_models import shapes, writers
from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written
from collage_core.search import CostTable, SearchCandidate, SearchProblem, SearchTarget, search
from collage_core.search.moves import Choice, Moves
from collage_core.search.two_level import Method, TwoLevelLimits, two_level

_ALLOWED = 1.01
"""A plan is worse than its start if the lower bound of the interval is above this ratio."""


def run(command: Sequence[str]) -> None:
    """Run a command of `collage`.

    Raises:
        subprocess.CalledProcessError: If it fails.
    """
    subprocess.run([sys.executable, "-m", "collage.cli", *command], check=True)


def measured(name: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure one model: its two plans, their ratio, and the search's own statistics."""
    work: Path = arguments.work
    model = work / f"{name}.onnx"
    if not model.is_file():
        writers()[name](work)
    packages = {"lazy": work / f"{name}.collage", "two-level": work / f"{name}.two-level.collage"}
    documents = {"lazy": work / f"{name}.optimize.json", "two-level": work / f"{name}.two-level.json"}
    found: dict[str, dict[str, Any]] = {}
    shared = ["--toolchains", arguments.toolchains, "--preset", arguments.preset, *shapes(model)]
    shared += ["--tuning-db", str(documents["lazy"].with_suffix(".sqlite"))]
    for kind, package in packages.items():
        if kind == "two-level" or not documents[kind].is_file():
            command = ["optimize", str(model), "-o", str(package), "--search", kind, "--json", str(documents[kind])]
            trace_file = ["--trace", str(work / f"{name}.trace.json")] if kind == "two-level" else []
            run([*command, *shared, *trace_file])
        found[kind] = json.loads(documents[kind].read_text(encoding="utf-8"))
        if found[kind]["search"]["method"] != kind:
            raise SystemExit(f"{documents[kind]} is of a search by {found[kind]['search']['method']}, not {kind}")
    trace = json.loads((work / f"{name}.trace.json").read_text(encoding="utf-8"))
    plans = {kind: _plan(document) for kind, document in found.items()}
    result: dict[str, Any] = {
        "name": name,
        "plans": {kind: {"kernels": len(plan), "uses": sorted({t for t, _ in plan})} for kind, plan in plans.items()},
        "evaluations": len(trace.get("evaluations", ())),
        "promised": trace.get("ratio"),
        "afresh": trace.get("afresh"),
        "refine_seconds": {kind: document["search"]["seconds"]["refine"] for kind, document in found.items()},
    }
    if plans["lazy"] == plans["two-level"]:
        return result | {"ratio": 1.0, "ci95": [1.0, 1.0], "verdict": "no gain"}
    compared = work / f"{name}.two-level.bench.json"
    both = [str(packages["two-level"]), str(packages["lazy"])]
    run(["bench", *both, "--rounds", str(arguments.rounds), "--json", str(compared)])
    return result | _verdict(json.loads(compared.read_text(encoding="utf-8")), both)


def _verdict(compared: Mapping[str, Any], packages: Sequence[str]) -> dict[str, Any]:
    """Compute the ratio of the first package to the second, from medians and their intervals."""
    latency = {each["name"]: each["latency_ms"] for each in compared["comparison"]["contenders"]}
    ours, start = (latency[Path(package).stem] for package in packages)
    ratio = ours["p50"] / start["p50"]
    low, high = ours["ci95"][0] / start["ci95"][1], ours["ci95"][1] / start["ci95"][0]
    verdict = "gain" if high < 1 else "worse than its start" if low > _ALLOWED else "no gain"
    return {"ratio": ratio, "ci95": [low, high], "verdict": verdict}


def _plan(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the toolchain and nodes of each region; equal for equal plans."""
    return [
        (region["toolchain"], hashlib.sha256("\n".join(region["nodes"]).encode()).hexdigest())
        for region in document["regions"]
    ]


HEADINGS = ("model", "plans timed", "kernels before", "after", "promised", "afresh", "ratio", "95 %", "verdict")


def row(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Format one model as text under `HEADINGS`."""
    low, high = model["ci95"]
    promised = "" if model["promised"] is None else f"{model['promised']:.3f}"
    afresh = ""
    if model["afresh"] is not None:
        afresh = "{:.3f} ({:.3f} to {:.3f})".format(model["afresh"]["ratio"], *model["afresh"]["ci95"])
    return (
        model["name"],
        str(model["evaluations"]),
        *(str(model["plans"][kind]["kernels"]) for kind in ("lazy", "two-level")),
        promised,
        afresh,
        f"{model['ratio']:.3f}",
        f"{low:.3f} to {high:.3f}",
        model["verdict"],
    )


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a Markdown page."""
    how = (
        "`--search two-level` against its own start, the plan of `--search lazy` over the same database. Both packages "
        f"are timed afresh, each in a process of its own, {report['rounds']} rounds, interleaved. The ratio is that of "
        "the medians; its interval goes from the quotient of the ends of theirs that are nearest to that of those "
        "farthest apart. `promised` is what the search itself had measured for the best plan it tried, `afresh` what "
        "became of that in the longer race it has to win before it is kept; none was run where the best plan was a "
        "start. Where both searches end with the same plan there is nothing to time, and no gain."
    )
    lines = [*head("What the second level of the search gains", report, how, "one contender at a time")]
    return "\n".join([*lines, *lines_of(HEADINGS, map(row, report["models"]))]) + "\n"


class MockLatency:
    """A chain on two targets: kernel times add up, and each change of targets costs as much as a few nodes."""

    def __init__(self, seed: int, length: int = 12, longest: int = 4) -> None:
        runs = {(start, size) for size in range(1, longest + 1) for start in range(length - size + 1)} | {(0, length)}
        self.problem = SearchProblem.from_predecessors(
            [[node - 1] if node else [] for node in range(length)],
            targets=[SearchTarget(name=name, toolchain=name) for name in "ab"],
            candidates=[
                SearchCandidate(nodes=((1 << size) - 1) << start, target=name, key=f"{start}+{size}")
                for start, size in sorted(runs)
                for name in "ab"
            ],
        )
        rng = random.Random(seed)
        self.costs = {
            (each.target, each.key): 1.0 + sum(rng.uniform(2, 10) for _ in range(each.nodes.bit_count()))
            for each in self.problem.candidates
        }
        best = search(self.problem, CostTable(self.costs)).candidates
        self.starts = [best, *((c,) for c in self.problem.candidates if c.nodes == self.problem.needs_kernel)]

    def latency_us(self, plan: Choice) -> float:
        """Return the latency of a whole plan."""
        changes = sum(one.target != other.target for one, other in itertools.pairwise(plan))
        return sum(self.costs[each.target, each.key] for each in plan) + 6.0 * changes

    def evaluate(self, plans: Sequence[Choice]) -> list[float]:
        """See `Evaluator`."""
        first = self.latency_us(self.starts[0])
        return [self.latency_us(plan) / first for plan in plans]


def mock_comparison(seeds: int = 15) -> dict[str, dict[str, float]]:
    """Compute the mean latency relative to the best start, by number of evaluations and method."""
    found: dict[str, dict[str, float]] = {}
    methods: tuple[Method, ...] = ("climb", "evolve")
    for evaluations in (12, 24, 48, 96):
        row: dict[str, float] = {}
        for method in methods:
            ratios = []
            for seed in range(seeds):
                mock = MockLatency(seed)
                result = two_level(
                    Moves(mock.problem),
                    mock.starts,
                    mock,
                    limits=TwoLevelLimits(evaluations=evaluations, patience=evaluations, method=method, seed=seed),
                    predicted_us=lambda each, costs=mock.costs: costs[each.target, each.key],  # type: ignore[misc]
                )
                ratios.append(mock.latency_us(result.best) / min(map(mock.latency_us, mock.starts)))
            row[method] = statistics.mean(ratios)
        found[str(evaluations)] = row
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a plan is worse than its start."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.two_level", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: the suite")
    parser.add_argument("--work", type=Path, metavar="DIR", help="models, packages, the database, traces")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", metavar="TARGETS")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rounds", type=int, default=60, metavar="N", help="rounds of the comparison afresh")
    noting(parser)
    parser.add_argument("--mock", action="store_true", help="compare climbing and evolving on made-up latencies")
    options = parser.parse_args(arguments)
    console = Console(width=120)
    if options.mock:
        table = Table("evaluations", "climb", "evolve", title="latency over that of the best start, mean")
        for evaluations, means in mock_comparison().items():
            table.add_row(evaluations, f"{means['climb']:.4f}", f"{means['evolve']:.4f}")
        console.print(table)
        return 0
    if options.work is None:
        parser.error("--work DIR is missing")
    options.work.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    if options.results and options.results.is_file():
        results = json.loads(options.results.read_text(encoding="utf-8"))["models"]
    done = {each["name"] for each in results}
    for name in (name for name in options.names or MODELS if name not in done):
        results.append(measured(name, options))
        if options.results:
            report = {"schema_version": 1, **environment(), "rounds": options.rounds, "models": results}
            written(options.results, report, markdown(report), options.note)
    table = Table(*HEADINGS)
    for each in results:
        table.add_row(*row(each))
    console.print(table)
    return 1 if any(each["verdict"].startswith("worse") for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
