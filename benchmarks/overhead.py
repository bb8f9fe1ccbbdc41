"""Measure Collage's overhead: a whole model as one kernel against the library alone, and the loop between kernels.

Usage:
    python -m benchmarks.overhead [NAME...] --work DIR [--results FILE.json] [--rounds N] [--turns N]

Each model is optimized for one toolchain only, so that the plan is one kernel, and judged by
`benchmarks.harness` against the library called directly, bound beforehand. OpenVINO's own `benchmark_app`
takes turns with the plan in fresh processes; ONNX Runtime's `onnxruntime_perf_test` is not in its wheel, so
the bound session replaces it there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.judge.report import rounds_said
from benchmarks.page import head, lines_of, noting, written

MODELS = ("mnist", "squeezenet", "resnet50", "bert_base_6")
JUDGES = {"onnxruntime(spin=true)": "onnxruntime", "openvino": "openvino"}
"""By target, the harness's contender that calls its library directly with the same settings."""
HEADINGS = ("model", "against", "ms", "plan ms", "ratio", "95 %")
_CONTENDER = "collage=benchmarks/contenders/collage_package.py:model={package}"
_LIMIT_RATIO, _LIMIT_US, _LIMIT_LOOP_US = 1.02, 20.0, 2.0
_MEDIAN = re.compile(r"Median:\s+([0-9.]+) (us|ms)")


def direct(model: Path, package: Path, target: str, rounds: int) -> dict[str, Any]:
    """Compare a plan of one kernel with the bound call of its library, using the harness."""
    report = package.with_suffix(".judged.json")
    command = [sys.executable, "-m", "benchmarks.harness", str(model), "--only", JUDGES[target], "--json", str(report)]
    command += ["--rounds", str(rounds), "--contender", _CONTENDER.format(package=package)]
    command_output(command)
    judged = json.loads(report.read_text(encoding="utf-8"))
    found = {each["name"]: each for each in judged["models"][0]["contenders"]}
    plan, library = found["collage"], found[JUDGES[target]]
    return {
        "model": model.stem,
        "target": target,
        "library_ms": library["latency_ms"]["p50"],
        "plan_ms": plan["latency_ms"]["p50"],
        "ratio": plan["ratio_vs_best_single"]["ratio"],
        "ci95": plan["ratio_vs_best_single"]["ci95"],
        "environment": {key: judged[key] for key in ("date", "host", "versions", "protocol", "threads")},
    }


def own_tool(model: Path, package: Path, turns: int, threads: int) -> dict[str, Any] | None:
    """Compare a plan of one kernel with `benchmark_app`, in turns; return None if that is not installed."""
    tool = shutil.which("benchmark_app", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    if tool is None:
        return None
    command = [tool, "-m", str(model), "-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1", "-t", "3"]
    command += ["-nthreads", str(threads), "-infer_precision", "f32"]
    ratios, times = [], []
    for _ in range(turns):
        found = _MEDIAN.search(command_output(command))
        assert found is not None, "benchmark_app printed no median"
        theirs = float(found[1]) / (1e3 if found[2] == "us" else 1.0)
        report = package.with_suffix(".bench.json")
        bench = [sys.executable, "-m", "collage.cli", "bench", str(package), "--duration", "3", "--rounds", "12"]
        command_output([*bench, "--json", str(report)])
        [ours] = json.loads(report.read_text(encoding="utf-8"))["comparison"]["contenders"]
        ratios.append(ours["latency_ms"]["p50"] / theirs)
        times.append((theirs, ours["latency_ms"]["p50"]))
    return {
        "model": model.stem,
        "tool": "benchmark_app -api sync",
        "library_ms": statistics.median(theirs for theirs, _ in times),
        "plan_ms": statistics.median(ours for _, ours in times),
        "ratio": statistics.median(ratios),
        "ratios": sorted(ratios),
    }


def loop_us(kernels: int = 256, runs: int = 400) -> float:
    """Measure the runtime loop's time per kernel over many empty kernels, the call included, in microseconds."""
    from collage.runtime import BoundRun, BoundStep

    steps = [BoundStep(name=f"k{i}", target="", nodes=(), call=_nothing) for i in range(kernels)]
    run = BoundRun(steps=steps, inputs={}, outputs={}, order=[])
    return _median_us(run.call, runs) / kernels


def _nothing() -> None:
    pass


def _median_us(call: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        began = time.perf_counter_ns()
        call()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / 1e3


def command_output(command: Sequence[str]) -> str:
    """Run a command from the repository's root and return what it printed.

    Raises:
        SystemExit: If it failed; the message is the end of what it said.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if ran.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {(ran.stderr or ran.stdout).strip()[-1500:]}")
    return ran.stdout


def rows(plans: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `HEADINGS`."""
    for each in (*plans, *tools):
        low, high = each.get("ci95") or (each["ratios"][0], each["ratios"][-1])
        interval = f"{low:.3f} - {high:.3f}" + ("" if "ci95" in each else " (range)")
        times = f"{each['library_ms']:.3f}", f"{each['plan_ms']:.3f}"
        yield each["model"], each.get("target") or each["tool"], *times, f"{each['ratio']:.3f}", interval


def markdown(plans: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]], loop: float) -> str:
    """Format the results as a page: the machine, the versions, the table."""
    environment = plans[-1]["environment"]
    how = (
        "Each plan is the whole model as one kernel of one toolchain. Against the library called directly, its inputs "
        f"and outputs bound beforehand: `benchmarks/harness.py`, {rounds_said(environment['protocol'])}, ratios "
        "paired by round. Against `benchmark_app`, which is OpenVINO's own tool: processes in turn, the median of the "
        "turns' quotients of medians, and their range. ONNX Runtime's own tool is not in its wheel."
    )
    lines = [
        *head("What Collage adds to a library", environment, how, f"{environment['threads']} threads"),
        *lines_of(HEADINGS, rows(plans, tools)),
        "",
        f"The loop between kernels takes {loop:.3f} us per kernel.",
    ]
    return "\n".join(lines) + "\n"


def _holds(found: dict[str, Any]) -> bool:
    slower_us = (found["plan_ms"] - found["library_ms"]) * 1e3
    return bool(found["ratio"] <= _LIMIT_RATIO or slower_us <= _LIMIT_US)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark.

    Returns:
        1 if a plan is slower than its library, or its library's tool, by more than 2 % and 20 us, or the loop takes
        more than 2 us per kernel; else 0.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead", description=__doc__)
    parser.add_argument("names", nargs="*", default=MODELS, metavar="NAME")
    parser.add_argument("--work", type=Path, default=Path("demo-out/overhead"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
    parser.add_argument("--rounds", type=int, default=90, help="rounds of the judge")
    parser.add_argument("--turns", type=int, default=7, help="turns of `benchmark_app` and the plan")
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 130)
    threads = len(os.sched_getaffinity(0))
    plans, tools = [], []
    for name in options.names:
        model = options.work / f"{name}.onnx"
        if not model.exists():
            command_output([sys.executable, "-m", "benchmarks.models", name, "--out", str(options.work)])
        for target in JUDGES:
            console.print(f"{name}, {target} ...")
            package = options.work / f"{name}-{JUDGES[target]}.collage"
            if not package.exists():
                optimize = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(package)]
                optimize += ["--toolchains", target, "--preset", "quick"]
                command_output([*optimize, "--tuning-db", str(options.work / "tuning.sqlite")])
            plans.append(direct(model, package, target, options.rounds))
            if target == "openvino" and (found := own_tool(model, package, options.turns, threads)):
                tools.append(found)
    loop = loop_us()
    shown = Table(title="a plan of one kernel against the library alone, and against the library's own tool")
    for heading in HEADINGS:
        shown.add_column(heading)
    for row in rows(plans, tools):
        shown.add_row(*row)
    console.print(shown)
    console.print(f"the loop takes {loop:.3f} us per kernel")
    if options.results:
        report = {"schema_version": 1, "plans": plans, "tools": tools, "loop_us": loop}
        written(options.results, report, markdown(plans, tools, loop), options.note, afresh=True)
    return 0 if all(map(_holds, [*plans, *tools])) and loop <= _LIMIT_LOOP_US else 1


if __name__ == "__main__":
    sys.exit(main())
