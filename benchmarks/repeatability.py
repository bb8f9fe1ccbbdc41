"""Optimize models several times from empty databases, some of the times beside other load, and compare the plans.

Usage:
    python -m benchmarks.repeatability [NAME...] --work DIR [--results FILE.json] [--runs N] [--rounds N]

In every other run a process burns one core, three seconds of every six. Plans are the same if they have the same
kernels on the same targets. Where runs find several, the independent judge races a package of each with that of the
plan found most often, without other load. Runs and races whose result is in DIR are not made again.

Exits with 1 if the interval of a ratio does not contain 1, or is wider than a measurement's may be.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx

from benchmarks.all_models import shapes, writers
from benchmarks.judge.contender import CONTENDERS, Contender
from benchmarks.judge.inputs import beside, read
from benchmarks.judge.report import rounds_said, write_json
from benchmarks.judge.rounds import PATIENCE, Protocol, compete
from benchmarks.judge.statistics import HALF_WIDTH, decides
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.records import plan_of

NAMES: Final = ("segmenter", "conv3d_gru", "resnet50")
_BURN: Final = """
import os, time
parent = os.getppid()
while os.getppid() == parent:  # also if that was killed
    end = time.monotonic() + 3
    while time.monotonic() < end:
        pass
    time.sleep(3)
"""
HEADINGS = ("model", "plan", "runs", "beside load", "kernels", "ratio", "95 %", "verdict")


@contextlib.contextmanager
def load() -> Iterator[None]:
    """Keep one core busy for half of the time."""
    process = subprocess.Popen([sys.executable, "-c", _BURN])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def plan_key(plan: Sequence[Mapping[str, Any]]) -> str:
    """Return a short name of a plan, the same for the same kernels on the same targets in any order."""
    kernels = sorted((kernel["target"], sorted(kernel["nodes"])) for kernel in plan)
    return hashlib.sha256(json.dumps(kernels).encode()).hexdigest()[:8]


def run(model: Path, work: Path) -> dict[str, Any]:
    """Run `collage optimize` from an empty database; return plan and seconds, as JSON. A package of each plan is kept.

    Raises:
        RuntimeError: If it fails.
    """
    with tempfile.TemporaryDirectory(dir=work) as folder:
        package = Path(folder) / "model.collage"
        command = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(package)]
        command += ["--toolchains", "onnxruntime,openvino", "--tuning-db", str(Path(folder) / "tuning.sqlite")]
        command += shapes(model)
        began = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        plan = plan_of(package)
        shutil.move(package, kept(model, plan_key(plan)))
    targets = [f"{kernel['target']} {len(kernel['nodes'])}" for kernel in plan]
    return {"plan": plan_key(plan), "kernels": targets, "seconds": round(time.monotonic() - began, 1)}


def kept(model: Path, key: str) -> Path:
    """Return where a package of a plan is kept."""
    return model.with_suffix(f".{key}.collage")


def raced(model: Path, keys: Sequence[str], protocol: Protocol) -> dict[str, list[float]]:
    """Have the judge race packages; return each one's ratio to the first, and its interval, as JSON.

    Raises:
        RuntimeError: If one of them fails.
    """
    contenders = [
        Contender(name=key, file=CONTENDERS / "collage_package.py", options={"model": str(kept(model, key))})
        for key in keys
    ]
    outputs = [output.name for output in onnx.load(model).graph.output]
    outcomes = {
        each.contender.name: each for each in compete(model, read(beside(model)), outputs, contenders, protocol)
    }
    for key, outcome in outcomes.items():
        if outcome.failed:
            raise RuntimeError(f"{kept(model, key)}: {outcome.failed}")
    first = outcomes[keys[0]]
    ratios = {key: outcomes[key].ratio_to(first) for key in keys[1:]}
    return {key: [ratio.value, ratio.low, ratio.high] for key, ratio in ratios.items()}


def raced_once(model: Path, keys: Sequence[str], protocol: Protocol) -> dict[str, list[float]]:
    """Return what `raced` does; a race of the same plans by the same protocol is not run again.

    Args:
        model: The model; the result is kept beside it.
        keys: Plans, the one found most often first.
        protocol: How to race.
    """
    if len(keys) < 2:
        return {}
    done = model.with_suffix(".race.json")
    of = {"plans": list(keys), "protocol": dataclasses.asdict(protocol)}
    known = json.loads(done.read_text(encoding="utf-8")) if done.is_file() else {}
    if known.get("of") != of:
        known = {"of": of, "ratios": raced(model, keys, protocol)}
        write_json(done, known)
    ratios: dict[str, list[float]] = known["ratios"]
    return ratios


def verdict(ratio: Sequence[float] | None) -> str:
    """Say what a ratio with its interval means; None is the plan that the others are compared with.

    Examples:
        >>> verdict(None), verdict((1.0, 0.99, 1.01)), verdict((1.05, 1.03, 1.07)), verdict((1.0, 0.9, 1.1))
        ('most often', 'as fast', 'differs', 'not measured')
    """
    if ratio is None:
        return "most often"
    _, low, high = ratio
    if not decides(low, high):
        return "not measured"
    return "as fast" if low <= 1 <= high else "differs"


def by_plan(runs: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return runs by plan, the plan found most often first."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for each in runs:
        found.setdefault(each["plan"], []).append(each)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def lost(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each plan that is not known to be as fast as the one found most often."""
    return [
        f"{model['model']}, plan {key}: {verdict(ratio)}"
        for model in models
        for key, ratio in model["ratios"].items()
        if verdict(ratio) != "as fast"
    ]


def rows(model: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Format what runs of a model found, a row for each plan under `HEADINGS`."""
    for key, runs in by_plan(model["runs"]).items():
        ratio = model["ratios"].get(key)
        figures = ("", "") if ratio is None else (f"{ratio[0]:.3f}", f"{ratio[1]:.3f} - {ratio[2]:.3f}")
        beside_load = sum(each["load"] for each in runs)
        kernels = ", ".join(runs[0]["kernels"])
        yield model["model"], key, str(len(runs)), str(beside_load), kernels, *figures, verdict(ratio)


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    models = report["models"]
    how = (
        f"Each model was optimized {max(len(model['runs']) for model in models)} times with default settings, from an "
        "empty tuning database, every other time beside a process that burnt one core for half of the time. Of each "
        "plan that was found, kernels are given by target and number of nodes. Ratios are to the plan found most "
        f"often, by `benchmarks/judge`: {rounds_said(report['protocol'])}, separate processes, interleaved, paired by "
        f"round, without other load. An interval with a half-width above {HALF_WIDTH:.0%} is not measured."
    )
    lines = head("The same model optimized again and again", report["environment"], how, "default settings")
    lines += lines_of(HEADINGS, (row for model in models for row in rows(model)))
    said = lost(models)
    return (
        "\n".join([*lines, "", f"Not held: {'; '.join(said)}." if said else "All plans of a model are as fast."]) + "\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is not there yet, and return 1 if a figure does not hold, 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.repeatability", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(NAMES)}")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--runs", type=int, default=10, metavar="N", help="of each model")
    parser.add_argument("--rounds", type=int, default=90, metavar="N", help="rounds of the judge, at least")
    noting(parser)
    options = parser.parse_args(arguments)
    write = writers()
    if unknown := sorted(set(options.names) - set(write)):
        print(f"repeatability: no model {', '.join(unknown)}; there are {', '.join(write)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    protocol = Protocol(threads=len(os.sched_getaffinity(0)), rounds=options.rounds, patience=PATIENCE)
    models: list[dict[str, Any]] = []
    for name in options.names or NAMES:
        path = write[name](options.work.resolve())
        runs = []
        for number in range(options.runs):
            done = path.with_suffix(f".run-{number}.json")
            if not done.is_file():
                beside_load = number % 2 == 1
                with load() if beside_load else contextlib.nullcontext():
                    found = run(path, options.work)
                write_json(done, {**found, "load": beside_load})
            runs.append(json.loads(done.read_text(encoding="utf-8")))
            print(name, json.dumps(runs[-1]), flush=True)
        keys = list(by_plan(runs))
        models.append({"model": name, "runs": runs, "ratios": raced_once(path, keys, protocol)})
        for row in rows(models[-1]):
            print("  ".join(row), flush=True)
    report = {"schema_version": 1, "environment": environment(), "protocol": dataclasses.asdict(protocol)}
    report["models"] = models
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    said = lost(models)
    print("; ".join(said) or "all plans of a model are as fast")
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
