"""Compare the lazy with the exhaustive search: measuring time saved, and quality of its plans.

Usage:
    python -m benchmarks.lazy_search [NAME...] --work DIR [--results FILE.json] [--fills N] [--databases N]

For each model the exhaustive strategy fills tuning databases with real measurements, each with the seconds
it took. Then both strategies are replayed over every database: the database answers their queries, at the
cost of the recorded seconds; what the exhaustive run never measured is measured now, once, and kept. With
fewer fills than databases the rest are resampled: every measurement's samples are drawn anew from its own.

At the end all plans that any replay would have timed run against each other in one race. In each replay a
strategy keeps what `optimize` would keep by the odd rounds; the value of that plan is taken from the even
ones, so that no plan is judged by the samples that chose it. Models that are in the results already are not
run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.replay.bench import Bench
from benchmarks.replay.source import Replay
from collage.decide.contenders import package_contender
from collage.decide.decision import decide
from collage.decide.races.race import HEAT_ROUNDS
from collage.decide.timed import Timed
from collage.measure.contenders.interleaved import Rounds, interleaved
from collage.measure.statistics import ratio_interval
from collage.measure.wire.outcomes import Failed
from collage.options import OptimizeOptions
from collage.report.progress import LineProgress
from collage.store import TuningStore, open_database
from collage_core.candidates.plan import Plan
from collage_core.errors import CollageError

NAMES = ("resnet50", "bert_base_6", "convnext_tiny")
WITHIN = 1.01
SHARE = 1 / 3
DEFAULT: Final = OptimizeOptions()
_STRATEGIES: Final = {"exhaustive": OptimizeOptions(search="exact"), "lazy": DEFAULT}


def filled(bench: Bench, number: int) -> TuningStore:
    """Open the database of one exhaustive run, which fills it with real measurements if it is incomplete."""
    return open_database(str(bench.path.with_name(f"{bench.path.stem}-{number}.sqlite")))


def timed(bench: Bench, plans: Mapping[str, Plan], rounds: int) -> Mapping[str, Rounds]:
    """Time plans against each other, all of them in every round; return the rounds by plan key."""
    place, progress = bench.place, bench.progress
    contenders = {}
    progress.phase("building plans", sum(len(plan.kernels) for plan in plans.values()))
    inputs = [bench.workload.inputs_document(place.folder, place.store)]
    for key, plan in plans.items():
        package = place.folder / f"{key}.collage"
        try:
            bench.save(plan, package)
        except CollageError as error:
            progress.message(f"{plan.name}: {error}")
            continue
        contenders[key] = package_contender(key, package, inputs, place.threads, built_here=True)
    samples: dict[str, Rounds] = {}
    for first in range(0, rounds, HEAT_ROUNDS):  # new processes for each heat, as in `optimize`
        progress.phase("timing whole plans", HEAT_ROUNDS * len(contenders))
        answers = interleaved(
            list(contenders.values()),
            rounds=HEAT_ROUNDS,
            burst_s=DEFAULT.effective.round_s,
            first_round=first,
            progress=lambda *_: progress.advance(),
        )
        failed = {key for key, answer in answers.items() if isinstance(answer, Failed)}
        contenders = {key: contender for key, contender in contenders.items() if key not in failed}
        for key, answer in answers.items():
            if not isinstance(answer, Failed):
                samples[key] = samples.get(key, ()) + answer
    return {key: samples[key] for key in contenders}


def kept(plans: Sequence[Plan], rounds: Mapping[str, Rounds]) -> Plan:
    """Return the plan that `optimize` would keep, judging by the odd rounds."""
    found: dict[str, Plan] = {}
    for plan in plans:
        if plan.key in rounds:
            found.setdefault(plan.key, plan)
    timed = [
        Timed(
            name=plan.name,
            single=plan.single,
            kernels=len(plan.kernels),
            toolchains=len(plan.toolchains),
            rounds_us=tuple(rounds[key][1::2]),
        )
        for key, plan in found.items()
    ]
    winner = decide(timed, seed=0).winner
    return next(plan for plan in plans if plan.name == winner)


def replayed(bench: Bench, fills: int, databases: int, rounds: int) -> dict[str, Any]:
    """Run the whole comparison for one model and return it as a JSON document."""
    for number in range(fills):
        bench.progress.message(f"{bench.path.stem}: exhaustive run {number + 1} of {fills}")
        with filled(bench, number) as store:
            bench.explored(_STRATEGIES["exhaustive"], bench.source(store))
    runs: list[dict[str, Any]] = []
    plans: dict[str, Plan] = {}
    for number in range(databases):
        bench.progress.message(f"{bench.path.stem}: replay {number + 1} of {databases}")
        run: dict[str, Any] = {"database": number % fills, "resampled": number >= fills}
        with filled(bench, number % fills) as store:
            for strategy, options in _STRATEGIES.items():
                source = Replay(store, number if number >= fills else None, **bench.options)
                _, found = bench.explored(options, source)
                plans |= {plan.key: plan for plan in found}
                run[strategy] = {
                    "seconds": source.seconds,
                    "measurements": source.counts.measured,
                    "plans": found,
                    "reached": {plan.key: source.reached(plan) for plan in found},
                    "measured_beyond": source.fresh,
                }
        runs.append(run)
    samples = timed(bench, plans, rounds)
    for run in runs:
        chosen = {name: kept(run[name]["plans"], samples) for name in _STRATEGIES}
        for name, plan in chosen.items():
            run[name] |= {
                "plans": [each.key for each in run[name]["plans"]],
                "kept": {"name": plan.name, "key": plan.key, "kernels": len(plan.kernels), "uses": plan.toolchains},
            }
        ratio = ratio_interval(samples[chosen["lazy"].key][::2], samples[chosen["exhaustive"].key][::2], seed=0)
        same = chosen["lazy"].key == chosen["exhaustive"].key
        run["ratio"] = 1.0 if same else ratio.value
        run["ratio_ci95"] = [1.0, 1.0] if same else [ratio.low, ratio.high]
        for name in _STRATEGIES:
            run[name]["reached_seconds"] = _reached(run[name].pop("reached"), samples, chosen["exhaustive"].key)
        total = run["exhaustive"]["seconds"]
        reached = run["lazy"]["reached_seconds"]
        run["share"] = None if reached is None else reached / total
        run["share_done"] = run["lazy"]["seconds"] / total
    ratio = statistics.median(run["ratio"] for run in runs)
    return {
        "name": bench.path.stem,
        "runs": runs,
        "ratio": ratio,
        "passed": ratio <= WITHIN
        and all(run["share"] is not None and run["share"] <= SHARE and run["ratio_ci95"][0] <= WITHIN for run in runs),
    }


def _reached(reached: Mapping[str, float], samples: Mapping[str, Rounds], best: str) -> float | None:
    """Return the seconds until all kernels were measured of some plan almost as fast as the best.

    A plan is almost as fast if its latency is at most `WITHIN` times that of the best.

    Args:
        reached: Seconds by plan key.
        samples: Samples of the plans in the race; the even rounds count.
        best: Key of the best plan.

    Returns:
        None if there is no such plan.
    """
    near = {
        best,
        *(key for key in samples if ratio_interval(samples[key][::2], samples[best][::2], seed=0).value <= WITHIN),
    }
    return min((seconds for key, seconds in reached.items() if key in near and math.isfinite(seconds)), default=None)


_SECONDS = ("exhaustive s", "reached", "lazy s", "reached")
HEADINGS = ("model", "database", *_SECONDS, "share", "lazy/exhaustive", "95 %", "kept")


def rows(models: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `HEADINGS`: a row for each replay, and the median of each model."""
    for model in models:
        for number, run in enumerate(model["runs"]):
            both = [run[name]["kept"] for name in _STRATEGIES]
            names = [f"{each['name']} ({each['kernels']})" for each in both]
            yield (
                model["name"] if number == 0 else "",
                f"{number + 1}{' resampled' if run['resampled'] else ''}",
                *(text for name in _STRATEGIES for text in _seconds(run[name])),
                "" if run["share"] is None else f"{run['share']:.2f}",
                f"{run['ratio']:.3f}",
                f"{run['ratio_ci95'][0]:.3f} to {run['ratio_ci95'][1]:.3f}",
                "the same" if both[0]["key"] == both[1]["key"] else " / ".join(names),
            )
        yield "", "median", "", "", "", "", "", f"{model['ratio']:.3f}", "", verdict(model)


def _seconds(found: Mapping[str, Any]) -> tuple[str, str]:
    reached = found["reached_seconds"]
    return f"{found['seconds']:.1f} ({found['measurements']})", "never" if reached is None else f"{reached:.1f}"


def verdict(model: Mapping[str, Any]) -> str:
    """Return whether a model passed, as text for the table."""
    return "holds" if model["passed"] else "FAILED"


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a Markdown page."""
    how = (
        "Seconds of measuring (and how many measurements) until each search is done, and until it had reached, that "
        f"is measured all kernels of, a plan that takes at most {WITHIN} of the time of the one the exhaustive search "
        "keeps; replayed over databases of real measurements. After the first few, databases are those with every "
        "measurement's samples drawn anew from its own. All plans any replay would have timed ran in one race, "
        "interleaved, each in a process of its own; each search keeps what `optimize` keeps by the odd rounds, and "
        "what plans take is read off the even ones. The share, of what the lazy search took to reach such a plan in "
        f"all that the exhaustive one took, should be at most {SHARE:.2f}, and what it keeps in the end as good."
    )
    lines = head("The lazy search against the exhaustive one", report, how, "one contender at a time")
    return "\n".join([*lines, *lines_of(HEADINGS, rows(report["models"]))]) + "\n"


def shown(models: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print the results as a table."""
    table = Table(*HEADINGS)
    for each in rows(models):
        table.add_row(*each, end_section=each[1] == "median")
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a model did not pass."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lazy_search", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"models; default: {', '.join(NAMES)}")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="models and databases")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", metavar="TARGETS")
    parser.add_argument("--fills", type=int, default=10, metavar="N", help="databases filled by real measurements")
    parser.add_argument("--databases", type=int, default=10, metavar="N", help="databases replayed")
    parser.add_argument("--rounds", type=int, default=120, metavar="N", help="rounds in which all plans are timed")
    noting(parser)
    options = parser.parse_args(arguments)
    if not 1 <= options.fills <= options.databases:
        parser.error("--fills is at least 1 and at most --databases")
    options.work.mkdir(parents=True, exist_ok=True)
    models: list[dict[str, Any]] = []
    if options.results and options.results.is_file():
        models = json.loads(options.results.read_text(encoding="utf-8"))["models"]
    done = {each["name"] for each in models}
    for name in (name for name in options.names or NAMES if name not in done):
        path = options.work / f"{name}.onnx"
        if not path.is_file():
            if name not in MODELS:
                parser.error(f"there is no model {name!r}, and no file {path}")
            from benchmarks.models.__main__ import main as write_models

            write_models([name, "--out", str(options.work)])
        measured = dataclasses.replace(DEFAULT, toolchains=options.toolchains)
        with Bench(path, measured, options.work, LineProgress(sys.stderr)) as bench:
            models.append(replayed(bench, options.fills, options.databases, options.rounds))
        if options.results:
            report: dict[str, Any] = {"schema_version": 1, **environment(), "models": models}
            written(options.results, report, markdown(report), options.note)
    shown(models, Console(width=140))
    return 0 if all(model["passed"] for model in models) else 1


if __name__ == "__main__":
    sys.exit(main())
