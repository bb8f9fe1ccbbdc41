"""Compare plans of native kernels and one toolchain with plans that give that toolchain all it supports.

Usage:
    python -m benchmarks.native_plus_one [NAME...] --work DIR [--results FILE.json] [--toolchains A,B] [--rounds N]
        [--device cuda:0] [--native NAME] [--also A,B]

For each model and toolchain, two packages are made: by `collage optimize` with that toolchain and native
kernels, and from the nodes that `collage partition --for` the toolchain marks: `optimize` respects marked
nodes, and native kernels run the rest. Both packages run against each other under `benchmarks/judge`, which
imports nothing of Collage. A search that may use less of a toolchain must never end worse than the rule
that uses as much as possible. Where both result in the same plan there is nothing to time. Models that are
in the results already are not run again.

On the CPU, native kernels are core's own, the reference; they are left out where the toolchain supports
every node, since they would only be slower. On a GPU they are those that `triton` generates, which always
take part. `--also` names toolchains that run what neither supports, such as ONNX Runtime on the CPU. On a
GPU inputs and outputs are in its memory.

Exit status: 0; 1 if a plan is worse than giving the toolchain all it supports, or failed; 2 where there is
no such GPU.
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

from benchmarks.gpu_plan import toolchain_of, usable
from benchmarks.gpu_steps import gpu, targets_here
from benchmarks.judge import inputs as judged_inputs
from benchmarks.judge.contender import CONTENDERS, Contender
from benchmarks.judge.report import ratio_said, rounds_said
from benchmarks.judge.rounds import PROCESS_ROUNDS, Protocol, compete
from benchmarks.models import MODELS
from benchmarks.page import environment, head, lines_of, noting, written
from collage.commands.partition import partition as partition_model
from collage_core.errors import CollageError
from collage_core.ir.io.model_io import save_model

CPU_TOOLCHAINS = "onnxruntime,openvino"
_DOCTOR_S = 600.0
_ALLOWED = 1.01
"""A plan is worse if the lower bound of the interval is above this ratio."""
HEADINGS = ("model", "toolchain", "kernels", "of partition_for", "ratio", "95 %", "verdict")


class CommandError(Exception):
    """A command of `collage` failed; the message is its output."""


def run(command: Sequence[str]) -> None:
    """Run a command of `collage`.

    Raises:
        CommandError: If it fails.
    """
    full = [sys.executable, "-m", "collage.cli", *command]
    done = subprocess.run(full, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"status {done.returncode}"]
        raise CommandError(f"collage {command[0]}: {last[0]}")


def native_of(options: argparse.Namespace) -> str:
    """Return the toolchain or target that provides the native kernels."""
    named: str | None = options.native
    if named is not None:
        return named
    return "reference" if options.device == "cpu" else f"triton@{options.device}"


def measured(name: str, toolchain: str, options: argparse.Namespace, protocol: Protocol) -> dict[str, Any]:
    """Measure one model on one toolchain and return the result as a JSON document."""
    found: dict[str, Any] = {"name": name, "toolchain": toolchain, "kernels": None, "ratio": None, "ci95": None}
    try:
        return found | _compared(name, toolchain, options, protocol)
    except (CommandError, CollageError) as error:
        return found | {"verdict": f"failed: {' '.join(str(error).split())}"}


def _compared(name: str, toolchain: str, options: argparse.Namespace, protocol: Protocol) -> dict[str, Any]:
    """Compare both packages; return their numbers of kernels, the ratio with its interval, and a verdict."""
    work: Path = options.work
    model, stem = work / f"{name}.onnx", work / f"{name}.{toolchain}"
    if not model.is_file():
        from benchmarks.models.__main__ import main as write_models

        write_models([name, "--out", str(work)])
    marked = Path(f"{stem}.marked.onnx")
    shapes = _shapes(name)
    on_cpu = options.device == "cpu"
    target = toolchain if on_cpu else f"{toolchain}@{options.device}"
    partition = partition_model(model, target, input_shapes=_bound(name))
    save_model(partition.model, marked)
    others = [] if on_cpu and partition.taken == partition.kernel_nodes else [native_of(options), *options.also]
    targets = ",".join([target, *others])
    packages = {"collage": Path(f"{stem}.collage"), "partition_for": Path(f"{stem}.marked.collage")}
    plans: dict[str, list[dict[str, Any]]] = {}
    for contender, source in (("collage", model), ("partition_for", marked)):
        document = packages[contender].with_suffix(".json")
        command = ["optimize", str(source), "-o", str(packages[contender]), "--toolchains", targets]
        command += ["--preset", options.preset, "--tuning-db", str(work / options.database), "--json", str(document)]
        run([*command, *(shapes if source is model else [])])
        plans[contender] = json.loads(document.read_text(encoding="utf-8"))["regions"]
    found: dict[str, Any] = {}
    found["kernels"] = {contender: len(plan) for contender, plan in plans.items()}
    used = [[region["toolchain"] for region in plans[contender]] for contender in packages]
    if used[0] == used[1] and len(used[0]) == 1 and on_cpu:
        # of several kernels it does not say that they are the same, nor of one that its variant is
        return found | {"ratio": 1.0, "ci95": [1.0, 1.0], "verdict": "the same plan"}
    proto = onnx.load(model, load_external_data=False)
    file = judged_inputs.beside(model)
    outcomes = compete(
        model,
        judged_inputs.read(file) if file.is_file() else judged_inputs.random(proto, 0),
        [output.name for output in proto.graph.output],
        [
            Contender(
                name=contender,
                file=CONTENDERS / "collage_package.py",
                options={"model": str(package), "device": options.device if _is_cuda(options.device) else "cpu"},
            )
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
    collage, partition_for = outcomes
    ratio = collage.ratio_to(partition_for)
    verdict = "better" if ratio.high < 1 else "WORSE" if ratio.low > _ALLOWED else "no worse"
    return found | {"ratio": ratio.value, "ci95": [ratio.low, ratio.high], "verdict": verdict}


def _on_gpu(options: argparse.Namespace) -> list[str]:
    """Return the toolchains that are usable on a device, except the native one."""
    options.work.mkdir(parents=True, exist_ok=True)
    found = usable(targets_here(options.work, _DOCTOR_S), options.device)
    return [name for name in found if name != toolchain_of(native_of(options))]


def _is_cuda(device: str) -> bool:
    return device.startswith("cuda:")


def _bound(name: str) -> dict[str, tuple[int, ...]]:
    return {each: array.shape for each, array in MODELS[name].make_inputs().items()}


def _shapes(name: str) -> list[str]:
    options: list[str] = []
    for each, shape in _bound(name).items():
        options += ["--input-shapes", f"{each}:[{','.join(map(str, shape))}]"]
    return options


def row(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Format one model on one toolchain as text under `HEADINGS`."""
    counts = found["kernels"] or {}
    kernels = (str(counts.get(contender, "")) for contender in ("collage", "partition_for"))
    ratio = ("", "")
    if found["ratio"] is not None:
        ratio = f"{found['ratio']:.3f}", f"{found['ci95'][0]:.3f} to {found['ci95'][1]:.3f}"
    return found["name"], found["toolchain"], *kernels, *ratio, found["verdict"]


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a Markdown page."""
    protocol = report["protocol"]
    how = (
        "`collage optimize` with one toolchain and native kernels against `collage partition --for` the toolchain, "
        f"native kernels ({report.get('native', 'reference')}) running what it does not take, both as packages, judged "
        f"by `benchmarks/judge`: {rounds_said(protocol)}, in which "
        f"each, in a process of its own, runs for {protocol['seconds']} s. {ratio_said(protocol)}"
    )
    where = report.get("device", f"{protocol['threads']} threads")
    lines = head("One toolchain and native kernels against partition_for", report, how, where)
    return "\n".join([*lines, *lines_of(HEADINGS, map(row, report["models"]))]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a plan failed or is worse than assigning the toolchain all it takes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native_plus_one", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: the suite")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="models, packages, the database")
    parser.add_argument("--database", default="tuning.sqlite", metavar="NAME", help="the database's file in DIR")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
    parser.add_argument(
        "--toolchains", metavar="A,B", help=f"each alone; default: {CPU_TOOLCHAINS}; on a GPU those usable there"
    )
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    parser.add_argument("--native", metavar="TARGET", help="whose kernels are the native ones; see above")
    parser.add_argument("--also", default=[], type=lambda text: text.split(","), metavar="A,B", help="see above")
    parser.add_argument("--preset", default="default")
    parser.add_argument("--rounds", type=int, default=120)
    parser.add_argument("--seconds", type=float, default=0.04, help="least duration of a burst")
    noting(parser)
    options = parser.parse_args(arguments)
    facts: dict[str, str] = {"native": native_of(options)}
    if _is_cuda(options.device):
        try:
            facts["device"] = gpu(options.device)
        except ValueError as error:
            print(f"native_plus_one: {error}", file=sys.stderr)
            return 2
    toolchains = options.toolchains or (CPU_TOOLCHAINS if options.device == "cpu" else ",".join(_on_gpu(options)))
    options.work.mkdir(parents=True, exist_ok=True)
    protocol = Protocol(
        threads=len(os.sched_getaffinity(0)),
        rounds=options.rounds,
        process_rounds=None if _is_cuda(options.device) else PROCESS_ROUNDS,
        seconds=options.seconds,
    )
    results: list[dict[str, Any]] = []
    if options.results and options.results.is_file():
        results = json.loads(options.results.read_text(encoding="utf-8"))["models"]
    done = {(each["name"], each["toolchain"]) for each in results}
    for name in options.names or MODELS:
        for toolchain in toolchains.split(","):
            if (name, toolchain) in done:
                continue
            results.append(measured(name, toolchain, options, protocol))
            if options.results:
                report: dict[str, Any] = {
                    "schema_version": 1,
                    **environment(),
                    **facts,
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
