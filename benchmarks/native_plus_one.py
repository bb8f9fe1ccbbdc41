"""Core's own kernels and one toolchain against giving that toolchain all it takes, judged from outside.

Usage:
    python -m benchmarks.native_plus_one [NAME...] --work DIR [--results FILE.json] [--toolchains A,B] [--rounds N]

For each model and toolchain: `collage optimize` with that toolchain alone, and what `collage partition --for` it
marks, made a package as it stands: `optimize` respects what is marked. Where the toolchain does not take every node,
core's own kernels, the reference, run the rest of both; elsewhere they would only be slower, and are left out. Both
packages run against each other under `benchmarks/judge`, which imports nothing of Collage. A search that may use less
of a toolchain must never end worse than the rule that uses as much as possible. Where both come to the same plan there
is nothing to time. Models that are in the results already are not done again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.judge import inputs as judged_inputs
from benchmarks.judge.contender import CONTENDERS, Contender
from benchmarks.judge.rounds import Protocol, compete
from benchmarks.judge.statistics import paired_ratio
from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written
from collage_core import pipeline
from collage_core.ir.model_io import save_model

_OWN = "reference"
_ALLOWED = 1.01
"""A plan is worse if even the lower end of the interval is above this."""
HEADINGS = ("model", "toolchain", "kernels", "of partition_for", "ratio", "95 %", "verdict")


def run(command: Sequence[str]) -> None:
    """Runs a command of `collage`.

    Raises:
        subprocess.CalledProcessError: If it fails.
    """
    subprocess.run([sys.executable, "-m", "collage_core.cli", *command], check=True)


def measured(name: str, toolchain: str, options: argparse.Namespace, protocol: Protocol) -> dict[str, Any]:
    """One model on one toolchain, as JSON."""
    work: Path = options.work
    model, stem = work / f"{name}.onnx", work / f"{name}.{toolchain}"
    if not model.is_file():
        from benchmarks.models.__main__ import main as write_models

        write_models([name, "--out", str(work)])
    marked = Path(f"{stem}.marked.onnx")
    shapes = _shapes(name)
    partition = pipeline.partition(model, toolchain, input_shapes=_bound(name))
    save_model(partition.model, marked)
    targets = toolchain if partition.taken == partition.kernel_nodes else f"{toolchain},{_OWN}"
    packages = {"collage": Path(f"{stem}.collage"), "partition_for": Path(f"{stem}.marked.collage")}
    plans: dict[str, list[dict[str, Any]]] = {}
    for contender, source in (("collage", model), ("partition_for", marked)):
        document = packages[contender].with_suffix(".json")
        command = ["optimize", str(source), "-o", str(packages[contender]), "--toolchains", targets]
        command += ["--preset", options.preset, "--tuning-db", str(work / options.database), "--json", str(document)]
        run([*command, *(shapes if source is model else [])])
        plans[contender] = json.loads(document.read_text(encoding="utf-8"))["regions"]
    found: dict[str, Any] = {"name": name, "toolchain": toolchain}
    found["kernels"] = {contender: len(plan) for contender, plan in plans.items()}
    used = [[region["toolchain"] for region in plans[contender]] for contender in packages]
    if used[0] == used[1] and len(used[0]) == 1:  # of several kernels it does not say that they are the same
        return found | {"ratio": 1.0, "ci95": [1.0, 1.0], "verdict": "the same plan"}
    proto = onnx.load(model, load_external_data=False)
    file = judged_inputs.beside(model)
    outcomes = compete(
        model,
        judged_inputs.read(file) if file.is_file() else judged_inputs.random(proto, 0),
        [output.name for output in proto.graph.output],
        [
            Contender(name=contender, file=CONTENDERS / "collage_package.py", options={"model": str(package)})
            for contender, package in packages.items()
        ],
        protocol,
    )
    for outcome in outcomes:
        if outcome.failed is not None:
            return found | {
                "ratio": None,
                "ci95": None,
                "verdict": f"{outcome.contender.name} failed: {outcome.failed}",
            }
    ratio = paired_ratio(*(outcome.rounds_us for outcome in outcomes))
    verdict = "better" if ratio.high < 1 else "WORSE" if ratio.low > _ALLOWED else "no worse"
    return found | {"ratio": ratio.value, "ci95": [ratio.low, ratio.high], "verdict": verdict}


def _bound(name: str) -> dict[str, tuple[int, ...]]:
    return {each: array.shape for each, array in MODELS[name].make_inputs().items()}


def _shapes(name: str) -> list[str]:
    options: list[str] = []
    for each, shape in _bound(name).items():
        options += ["--input-shapes", f"{each}:[{','.join(map(str, shape))}]"]
    return options


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """One model on one toolchain, as text under `HEADINGS`."""
    kernels = (str(found["kernels"][contender]) for contender in ("collage", "partition_for"))
    ratio = ("", "")
    if found["ratio"] is not None:
        ratio = f"{found['ratio']:.3f}", f"{found['ci95'][0]:.3f} to {found['ci95'][1]:.3f}"
    return found["name"], found["toolchain"], *kernels, *ratio, found["verdict"]


def markdown(report: Mapping[str, Any]) -> str:
    """What was found, as a page."""
    protocol = report["protocol"]
    how = (
        "`collage optimize` with one toolchain against `collage partition --for` it, core's own kernels running what "
        f"it does not take, both as packages, judged by `benchmarks/judge`: {protocol['rounds']} rounds, in which "
        f"each, in a process of its own, runs for {protocol['seconds']} s. The ratio is the median over rounds of both "
        "medians' quotient, its interval a bootstrap over rounds."
    )
    lines = head("One toolchain and core against partition_for", report, how, f"{protocol['threads']} threads")
    return "\n".join([*lines, *lines_of(HEADINGS, map(row, report["models"]))]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; 1 if a plan is worse than giving the toolchain all it takes, or failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native_plus_one", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: the suite")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="models, packages, the database")
    parser.add_argument("--database", default="tuning.sqlite", metavar="NAME", help="the database's file in DIR")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
    parser.add_argument("--toolchains", default="onnxruntime,openvino", metavar="A,B", help="each alone")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rounds", type=int, default=60)
    noting(parser)
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    protocol = Protocol(threads=len(os.sched_getaffinity(0)), rounds=options.rounds)
    results: list[dict[str, Any]] = []
    if options.results and options.results.is_file():
        results = json.loads(options.results.read_text(encoding="utf-8"))["models"]
    done = {(each["name"], each["toolchain"]) for each in results}
    for name in options.names or MODELS:
        for toolchain in options.toolchains.split(","):
            if (name, toolchain) in done:
                continue
            results.append(measured(name, toolchain, options, protocol))
            if options.results:
                report: dict[str, Any] = {
                    "schema_version": 1,
                    **environment(),
                    "protocol": dataclasses.asdict(protocol),
                }
                report["models"] = results
                written(options.results, report, markdown(report), options.note)
    table = Table(*HEADINGS)
    for each in results:
        table.add_row(*row(each))
    Console(width=120).print(table)
    return 1 if any(each["verdict"] not in ("better", "no worse", "the same plan") for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
