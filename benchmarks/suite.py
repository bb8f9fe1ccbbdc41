"""Run the whole suite: optimize every model, check its outputs, and have the independent judge time the plan.

Usage:
    python -m benchmarks.suite [NAME...] --work DIR [--results FILE.json] [--runs N]

Existing results are not computed again, so an interrupted run resumes; `--again` starts over. Every step is
a separate process, run with the commands a user would type.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.models import MODELS
from benchmarks.models.entry import Entry
from benchmarks.page import head, lines_of, noting, written

_CONTENDER = "collage=benchmarks/contenders/collage_package.py:model={package}"
_SINGLES = "onnxruntime,onnxruntime-nospin,openvino"
"""Tuned contenders only: with their defaults they are slower or equal, and the suite is long."""
_LOWER = {
    "openvino-bf16": "all by OpenVINO in bfloat16",
    "openvino-int8": "all products by OpenVINO in 8-bit integers",
    "onnxruntime-int8": "all products by ONNX Runtime in 8-bit integers",
}
"""Contenders of one toolchain and one lower precision, and what they are."""
_QUANTISE = "quantise"
"""Step that may fail: then nobody runs the whole model in 8-bit integers."""
_LIMIT = 1.03
"""Limit that the interval of a plan's ratio to the best single toolchain must stay below."""


class Model:
    """One model's files and steps.

    Args:
        entry: The model.
        work: Folder for its files.
        max_error: Error that is allowed; None for plans in the model's own types.
    """

    def __init__(self, entry: Entry, work: Path, max_error: float | None = None) -> None:
        self.entry = entry
        self.max_error = max_error
        self.model = work / f"{entry.name}.onnx"
        self.package = work / f"{entry.name}.collage"
        self.found = work / f"{entry.name}.optimize.json"
        self.compared = work / f"{entry.name}.compare.json"
        self.quantised = work / f"{entry.name}.int8.onnx"
        self.database = work / "tuning.sqlite"

    def judged(self, run: int) -> Path:
        """Report of one run of the judge."""
        return self.model.with_suffix(f".judged-{run}.json")

    def steps(self, arguments: argparse.Namespace) -> Iterator[tuple[str, Path, list[str]]]:
        """Yield the steps of a model: a name, the file that marks completion, and the command."""
        folder = str(self.model.parent)
        yield "build", self.model, [sys.executable, "-m", "benchmarks.models", self.entry.name, "--out", folder]
        optimize = [sys.executable, "-m", "collage.cli", "optimize", str(self.model), "-o", str(self.package)]
        optimize += ["--toolchains", arguments.toolchains, "--preset", arguments.preset, "--json", str(self.found)]
        optimize += ["--tuning-db", str(self.database), *self.shapes()]
        if self.max_error is not None:
            optimize += ["--max-error", str(self.max_error)]
        yield "optimize", self.found, optimize
        compare = [sys.executable, "-m", "collage.cli", "compare", str(self.model), str(self.package)]
        compare += ["--json", str(self.compared), "--seed", "7"]
        if self.max_error is not None:
            compare += ["--rtol", str(self.max_error)]
        yield "compare", self.compared, compare
        if self.max_error is not None:
            command = [sys.executable, "-m", "benchmarks.judge.quantised", str(self.model), str(self.quantised)]
            yield _QUANTISE, self.quantised, command
        for run in range(1, arguments.runs + 1):
            judge = [sys.executable, "-m", "benchmarks.harness", str(self.model), "--rounds", str(arguments.rounds)]
            judge += ["--only", _SINGLES + (",openvino-bf16" if self.max_error is not None else "")]
            if self.quantised.exists():
                for name, file in (("openvino", "openvino_request.py"), ("onnxruntime", "onnxruntime_session.py")):
                    judge += ["--contender", f"{name}-int8=benchmarks/contenders/{file}:model={self.quantised}"]
            judge += ["--contender", _CONTENDER.format(package=self.package), "--json", str(self.judged(run))]
            yield f"judge, run {run}", self.judged(run), judge

    def shapes(self) -> list[str]:
        """Return options that bind the input shapes; they are redundant where the model's own are static."""
        options = []
        for name, array in self.entry.make_inputs().items():
            options += ["--input-shapes", f"{name}:[{','.join(map(str, array.shape))}]"]
        return options

    def result(self) -> dict[str, Any]:
        """Return all results of the model as JSON, with every existing run of the judge."""
        found = json.loads(self.found.read_text(encoding="utf-8"))
        compared = json.loads(self.compared.read_text(encoding="utf-8"))
        judged = sorted(self.model.parent.glob(self.judged(0).name.replace("-0.", "-*.")))
        reports = [json.loads(path.read_text(encoding="utf-8")) for path in judged]
        with zipfile.ZipFile(self.package) as package:
            targets = sorted(json.loads(package.read("manifest.json"))["targets"])
        return {
            "name": self.entry.name,
            "nodes": found["model"]["nodes"],
            "targets": targets,
            "plan": [
                {key: region[key] for key in ("id", "toolchain", "cost_us")}
                | {"nodes": len(region["nodes"])}
                | products_of(region)
                for region in found["regions"]
            ],
            "predicted_ms": found["predicted_ms"],
            "measured_ms": found["measured_ms"],
            "max_error": max(found["max_error"], compared["max_error"]),
            "numbers_pass": compared["passed"],
            "max_error_allowed": self.max_error,
            "seconds": found["search"]["seconds"],
            "measured_candidates": found["search"]["measured"],
            "judged": [report["models"][0]["contenders"] for report in reports],
            "environment": {key: reports[-1][key] for key in ("date", "host", "versions", "protocol", "threads")},
        }


def products_of(region: Mapping[str, Any]) -> dict[str, int]:
    """Return how many products of a region there are to decide in precision, and how many are 8-bit integers."""
    precision = region.get("precision")
    return {} if precision is None else {"products": precision["products"], "int8": len(precision["int8"])}


def run_step(name: str, done: Path, command: Sequence[str], console: Console, again: bool) -> bool:
    """Run a command unless its result exists; report the error if it fails."""
    if done.exists() and not again:
        return True
    console.print(f"  {name} ...")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode != 0:
        console.print(f"  {name} failed ({run.returncode}): {run.stderr.strip()[-1500:]}", markup=False)
        return done.exists()  # `compare` reports numbers that are wrong and exits with 1
    return True


def contender(contenders: Sequence[Mapping[str, Any]], name: str) -> Mapping[str, Any] | None:
    """Return a contender that ran from a judge's report; None if there is none of this name."""
    return next((c for c in contenders if c["name"] == name and "latency_ms" in c), None)


def verdict(result: Mapping[str, Any]) -> str:
    """Recommend what a user should do with this model on this machine."""
    targets, plan = result["targets"], result["plan"]
    eight, products = (sum(region.get(key, 0) for region in plan) for key in ("int8", "products"))
    integers = f", {eight} of {products} products in int8" if eight else ""
    if len(targets) > 1:
        return f"mix {' and '.join(targets)}, {len(plan)} kernels{integers}"
    return f"use {targets[0]}" + (f", in {len(plan)} kernels" if len(plan) > 1 else "") + integers


_CALLED = ("run ms", "best single run", "ms", "ratio", "95 %")


def headings(results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the headings of `rows`: those of runs as users call them only where the judge timed such runs."""
    called = _CALLED if _timed_as_called(results) else ()
    return ("model", "verdict", "predicted ms", "plan ms", "best single", "ms", "ratio", "95 %", *called, "error")


def rows(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `headings`.

    There is one row per model and run of the judge, and one for each contender of lower precision that ran.
    """
    timed_as_called = _timed_as_called(results)

    def figures(contenders: Sequence[Mapping[str, Any]], name: str) -> tuple[str, ...]:
        called = _judged(_as_called(contenders), name) if timed_as_called else ()
        return *_judged(contenders, name), *called

    for result in results:
        for contenders in result["judged"]:
            error = f"{result['max_error']:.1e}" + ("" if result["numbers_pass"] else " WRONG")
            if result.get("max_error_allowed") and (plan := contender(contenders, "collage")) is not None:
                error += f", {_error(plan):.1e} by the judge"
            yield (
                result["name"],
                verdict(result),
                f"{result['predicted_ms']:.2f}",
                *figures(contenders, "collage"),
                error,
            )
            for name, what in _LOWER.items():
                if (ran := contender(contenders, name)) is not None and ran["max_error"] is not None:
                    yield result["name"], f"({what})", "", *figures(contenders, name), f"{ran['max_error']:.1e}"


def _timed_as_called(results: Sequence[Mapping[str, Any]]) -> bool:
    return any(_as_called(contenders) for result in results for contenders in result["judged"])


def _as_called(contenders: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the contenders with the figures of runs as users call them in place of those of bound runs."""
    return [{"name": c["name"], "kind": c["kind"], **c["as_called"]} for c in contenders if "as_called" in c]


def _judged(contenders: Sequence[Mapping[str, Any]], name: str) -> tuple[str, str, str, str, str]:
    singles = [c for c in contenders if c["kind"] == "single" and "latency_ms" in c]
    best = next((c for c in singles if c["ratio_vs_best_single"]["ratio"] == 1.0), None)
    against = ("none", "") if best is None else (best["name"], f"{best['latency_ms']['p50']:.2f}")
    ran = contender(contenders, name)
    if ran is None:
        return "failed", *against, "", ""
    low, high = ran["ratio_vs_best_single"]["ci95"]
    return (
        f"{ran['latency_ms']['p50']:.2f}",
        *against,
        f"{ran['ratio_vs_best_single']['ratio']:.3f}",
        f"{low:.3f} - {high:.3f}",
    )


def summary(results: Sequence[Mapping[str, Any]]) -> str:
    """Say in sentences what lower precision under a bound brings over all models.

    A ratio is that of bound calls. The best whole-model plan of one precision is the fastest contender but Collage that
    keeps to the bound, those in float32 included.
    """
    of_float32, of_best, own_errors, errors = [], [], [], []
    for result in results:
        for contenders in result["judged"]:
            plan = contender(contenders, "collage")
            if plan is None:
                continue
            ratio = plan["ratio_vs_best_single"]["ratio"]
            others = [
                each["ratio_vs_best_single"]["ratio"]
                for each in contenders
                if each["name"] != "collage" and "latency_ms" in each and _error(each) <= result["max_error_allowed"]
            ]
            of_float32.append(ratio)
            of_best.append(ratio / min(others))
            own_errors.append(result["max_error"])
            errors.append(_error(plan))
    bound = max(result["max_error_allowed"] for result in results)
    own, judged = ([error for error in each if error > bound] for each in (own_errors, errors))
    plans = [c for result in results for contenders in result["judged"] if (c := contender(contenders, "collage"))]
    upper = max(c["ratio_vs_best_single"]["ci95"][1] for c in plans)
    faster = [1 / statistics.geometric_mean(ratios) for ratios in (of_float32, of_best)]
    return (
        f"Over {len(of_float32)} models, plans are {faster[0]:.2f} times as fast as the best toolchain in float32, and "
        f"{faster[1]:.2f} times as fast as the best plan "
        f"for the whole model of one toolchain and one precision that keeps to {bound:g} (geometric means). {len(own)} "
        f"exceed that bound by `collage compare`, which compares before a final Softmax; {len(judged)} on the judge's "
        f"own inputs, compared as they are, the largest by {max(errors):.4f}. The largest upper end of an interval is "
        f"{upper:.3f}."
    )


def _error(judged: Mapping[str, Any]) -> float:
    """Return the error of a contender's outputs; infinite if it is not known."""
    return math.inf if judged["max_error"] is None else float(judged["max_error"])


def table(results: Sequence[Mapping[str, Any]]) -> Table:
    """Format the suite as a table."""
    shown = Table(title="plan against the best single toolchain, by the outside judge")
    for heading in headings(results):
        left = heading in ("model", "verdict", "best single", "best single run")
        shown.add_column(heading, justify="left" if left else "right")
    for row in rows(results):
        shown.add_row(*row)
    return shown


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Format the suite as a page: the machine, the versions, the table."""
    environment = results[-1]["environment"]
    protocol = environment["protocol"]
    counts = [result["environment"]["protocol"]["rounds"] for result in results]
    rounds = f"{min(counts)} to {max(counts)}" if min(counts) < max(counts) else f"{counts[0]}"
    how = (
        f"Judged by `benchmarks/harness.py`, which imports nothing of Collage: {rounds} rounds, in which each "
        f"contender, in a process of its own, runs for {protocol['seconds']} s after {protocol['warmup_s']} s of "
        "warm-up. The ratio is the median over rounds of both medians' quotient, its interval a bootstrap over rounds. "
        "Errors are relative to the output's scale, on inputs the search did not see."
    )
    if _timed_as_called(results):
        how += (
            " `plan ms` to `95 %` are of calls bound beforehand; `run ms` and what follows are as users call them: "
            "`session.run` of Collage and of ONNX Runtime, OpenVINO's compiled model called with arrays."
        )
    threads = f"{environment['threads']} threads per contender"
    lines = head("Plans against the best single toolchain", environment, how, threads)
    lines += lines_of(headings(results), rows(results))
    if any(result.get("max_error_allowed") for result in results):
        lines += ["", summary(results)]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite; return 1 if a model failed, has wrong outputs, or its plan is slower than allowed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.suite", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all models")
    parser.add_argument("--work", type=Path, default=Path("demo-out/suite"), metavar="DIR", help="folder for files")
    parser.add_argument(
        "--results", type=Path, metavar="FILE.json", help="write everything there and a table beside it"
    )
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rounds", type=int, default=90, help="rounds of the judge")
    parser.add_argument("--runs", type=int, default=1, help="fresh runs of the judge, at least")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", help="as for `collage optimize`")
    parser.add_argument("--max-error", type=float, help="as for `collage optimize`")
    parser.add_argument("--again", action="store_true", help="do everything anew")
    noting(parser)
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(MODELS))
    if unknown:
        print(f"suite: no model {', '.join(unknown)}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    console, results, failed = Console(width=None if sys.stdout.isatty() else 150), [], []
    for name in options.names or MODELS:
        console.print(f"{name}")
        model = Model(MODELS[name], options.work, options.max_error)
        steps = model.steps(options)
        if all(run_step(*step, console=console, again=options.again) or step[0] == _QUANTISE for step in steps):
            results.append(model.result())
        else:
            failed.append(name)
        if options.results and results:
            report = {"schema_version": 1, "models": results, "failed": failed}
            written(options.results, report, markdown(results), options.note, afresh=options.again)
    console.print(table(results))
    ok = all(_holds(result) for result in results)
    return 0 if ok and not failed else 1


def _holds(result: Mapping[str, Any]) -> bool:
    ways = [way for contenders in result["judged"] for way in (contenders, _as_called(contenders))]
    plans = [contender(contenders, "collage") for contenders in ways]
    fast = all(plan is not None and plan["ratio_vs_best_single"]["ci95"][1] <= _LIMIT for plan in plans)
    return fast and bool(result["numbers_pass"])


if __name__ == "__main__":
    sys.exit(main())
