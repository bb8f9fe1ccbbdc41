"""Race fused groups of real models: one kernel of `collage-halide` against the best plan of the libraries.

Usage:
    python -m benchmarks.fused_groups list --work DIR --results FILE.json [NAME...]
    python -m benchmarks.fused_groups race --work DIR --list FILE.json [--results FILE.json] [--rounds N] [--patience N]
        [GROUP...]

`list` asks `collage-halide` which groups it proposes in the models of the suite and of the generator, has ONNX
Runtime's profiler time their operators unfused, and keeps the 40 groups with most time, at most four with the same
operators. `race` extracts each group with inputs that the whole model computes, has `collage optimize` find the best
plan of ONNX Runtime and OpenVINO, mixed ones included, and one of Halide alone, both with default options, and has the
independent judge time both packages and the single toolchains. The base of a ratio is the fastest of all that is not
Halide's.

What is in DIR is not measured again, but for groups whose interval was too wide: more than 3 % of the base to either
side. `race` exits with 1 if fewer than 30 groups are at or below 1, fewer than 8 at or below a half, or an upsampling
with ArgMax above 0.4; a wide interval counts for none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnx
from rich.console import Console

from benchmarks.all_models import writers
from benchmarks.fused_groups.listing import Group, Prepared, chosen, extracted, groups_of
from benchmarks.judge.contender import CONTENDERS, Contender, built_in
from benchmarks.judge.inputs import beside, read
from benchmarks.judge.report import rounds_said
from benchmarks.judge.rounds import PATIENCE, Protocol, compete, fastest_of
from benchmarks.judge.statistics import HALF_WIDTH, decides
from benchmarks.models.__main__ import write_model
from benchmarks.page import environment, head, lines_of, noting, written

AT_MOST_ONE: Final = 30
AT_MOST_HALF: Final = 8
UPSAMPLED: Final = 0.4
ROUNDS: Final = 40
PLANS: Final[Mapping[str, str]] = {"libraries": "onnxruntime,openvino", "halide": "halide"}
_SINGLES: Final = ("onnxruntime", "openvino")


def listed(names: Sequence[str], work: Path, console: Console) -> list[Group]:
    """Return the groups of all models; what is in the folder is not measured again."""
    known = writers()
    found: list[Group] = []
    for number, name in enumerate(names or known, start=1):
        kept = work / f"{name}.groups.json"
        if not kept.is_file():
            console.print(f"{number} of {len(names or known)}: {name}", highlight=False)
            with tempfile.TemporaryDirectory(dir=work) as folder:
                prepared = Prepared(known[name](Path(folder)), threads())
                groups = groups_of(name, prepared)
            kept.write_text(json.dumps([dataclasses.asdict(group) for group in groups]) + "\n", encoding="utf-8")
        found += read_groups(json.loads(kept.read_text(encoding="utf-8")))
    return found


def read_groups(rows: Sequence[Mapping[str, Any]]) -> list[Group]:
    """Return groups from JSON."""
    return [Group(**{**row, "nodes": tuple(row["nodes"])}) for row in rows]


def threads() -> int:
    """Return the number of threads of every contender."""
    return len(os.sched_getaffinity(0))


def optimized(model: Path, toolchains: str, work: Path) -> tuple[Path, float]:
    """Run `collage optimize` with some toolchains; return the package, and the seconds it took.

    Raises:
        RuntimeError: If it fails.
    """
    package = model.with_suffix(f".{toolchains.replace(',', '-')}.collage")
    command = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(package)]
    command += ["--toolchains", toolchains, "--tuning-db", str(work / "tuning.sqlite")]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it fails silently")
    return package, time.monotonic() - began


def raced(group: Group, work: Path, protocol: Protocol) -> dict[str, Any]:
    """Extract, optimize and race a group; return the results as JSON."""
    model = work / f"{group.name}.onnx"
    if not model.is_file():
        with tempfile.TemporaryDirectory(dir=work) as folder:
            proto, feeds = extracted(Prepared(writers()[group.model](Path(folder)), threads()), group)
        write_model(model, proto, feeds)
    contenders = [built_in()[name] for name in _SINGLES]
    seconds = {}
    for name, toolchains in PLANS.items():
        package, seconds[name] = optimized(model, toolchains, work)
        contenders.append(Contender(name=name, file=CONTENDERS / "collage_package.py", options={"model": str(package)}))
    outputs = [output.name for output in onnx.load(model).graph.output]
    ran = {each.contender.name: each for each in compete(model, read(beside(model)), outputs, contenders, protocol)}
    rivals = {name: each for name, each in ran.items() if name != "halide" and not each.failed}
    if ran["halide"].failed or not rivals:
        raise RuntimeError(ran["halide"].failed or "no rival ran")
    medians = {name: median_us(each.rounds_us) for name, each in ran.items() if not each.failed}
    best = fastest_of(rivals.values())
    assert best is not None
    ratio = ran["halide"].ratio_to(best)
    return {
        **dataclasses.asdict(group),
        "times_ms": {name: value / 1e3 for name, value in medians.items()},
        "best": best.contender.name,
        "ratio": ratio.value,
        "ci95": [ratio.low, ratio.high],
        "seconds": seconds,
        "protocol": dataclasses.asdict(protocol),
    }


def median_us(rounds: Sequence[Sequence[float]]) -> float:
    """Return a contender's median over rounds."""
    return statistics.median(statistics.median(samples) for samples in rounds)


def failed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what does not hold."""
    measured = [row for row in rows if decides(*row["ci95"])]
    one = sum(row["ratio"] <= 1 for row in measured)
    half = sum(row["ratio"] <= 0.5 for row in measured)
    said = []
    if one < AT_MOST_ONE:
        said.append(f"{one} groups are at or below 1, {AT_MOST_ONE} were to be")
    if half < AT_MOST_HALF:
        said.append(f"{half} groups are at or below a half, {AT_MOST_HALF} were to be")
    for row in measured:
        operators = row["kind"].split()
        if "Resize" in operators and "ArgMax" in operators and row["ratio"] > UPSAMPLED:
            said.append(f"{row['name']}: {row['ratio']:.2f}, at most {UPSAMPLED} was wanted")
    return said


def list_page(report: Mapping[str, Any]) -> str:
    """Format the list."""
    how = (
        "The groups of two operators and more that `collage-halide` proposes in the models of the suite and of the "
        f"generator: the {len(report['groups'])} with most time, at most four with the same operators, none inside "
        "another. `unfused` is what ONNX Runtime takes for their operators, nothing fused, by its profiler."
    )
    rows = [[group["model"], group["kind"], f"{group['unfused_ms']:.3f}"] for group in report["groups"]]
    lines = head("Fused groups with most time", report, how, f"{report['threads']} threads")
    return "\n".join([*lines, *lines_of(("model", "operators", "unfused ms"), rows)]) + "\n"


def race_page(report: Mapping[str, Any]) -> str:
    """Format the race; how a group was raced is in its row, as it may be raced again with more rounds."""
    protocols = Counter(rounds_said(row["protocol"]) for row in report["groups"])
    usual, *others = [said for said, _ in protocols.most_common()] or ["none ran"]
    rounds = usual + (f" (of some groups: {' or '.join(others)})" if others else "")
    how = (
        "Each group as a model of its own, on inputs that its model computes: the best plan of ONNX Runtime and "
        "OpenVINO that `collage optimize` finds (`libraries`), these toolchains alone, and Halide's kernel, by "
        f"`benchmarks/judge`, each contender in a process of its own: {rounds}. The base of a "
        f"ratio is the fastest that is not Halide. Intervals with a half-width above {HALF_WIDTH:.0%} count for none."
    )
    rows = []
    for row in report["groups"]:
        times = row["times_ms"]
        low, high = row["ci95"]
        rows.append(
            [
                row["model"],
                row["kind"],
                row["best"],
                f"{times[row['best']]:.3f}",
                f"{times['halide']:.3f}",
                f"{row['ratio']:.3f}",
                f"{low:.3f} - {high:.3f}",
            ]
        )
    headings = ("model", "operators", "best", "ms", "halide ms", "ratio", "95 %")
    lines = head("Fused groups raced", report, how, f"{report['threads']} threads per contender")
    said = report["failed"]
    below = sum(row["ratio"] <= 1 for row in report["groups"])
    half = sum(row["ratio"] <= 0.5 for row in report["groups"])
    summary = f"{len(rows)} groups: {below} at or below 1, {half} at or below a half. "
    summary += f"Not held: {'; '.join(said)}." if said else "This holds."
    missing = [f"{name}: {why}" for name, why in report["errors"].items()]
    return "\n".join([*lines, *lines_of(headings, rows), "", summary, *(["", *missing] if missing else [])]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fused_groups", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("list", "race"):
        command = commands.add_parser(name)
        command.add_argument("names", nargs="*", metavar="NAME")
        command.add_argument("--work", type=Path, required=True, metavar="DIR")
        command.add_argument("--results", type=Path, metavar="FILE.json")
        noting(command)
    command.add_argument("--list", type=Path, required=True, metavar="FILE.json", dest="listing")
    command.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    command.add_argument(
        "--patience", type=int, default=PATIENCE, metavar="N", help="times the rounds, on a busy machine"
    )
    options = parser.parse_args(arguments)
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    if options.command == "list":
        groups = chosen(listed(options.names, options.work, console))
        report = {
            "schema_version": 1,
            **environment(),
            "threads": threads(),
            "groups": [dataclasses.asdict(group) for group in groups],
        }
        print(list_page(report))
        if options.results:
            written(options.results, report, list_page(report), options.note, afresh=True)
        return 0
    groups = read_groups(json.loads(options.listing.read_text(encoding="utf-8"))["groups"])
    protocol = Protocol(threads=threads(), rounds=options.rounds, patience=options.patience)
    rows, errors = [], {}
    for number, group in enumerate(groups, start=1):
        if options.names and group.name not in options.names:
            continue
        kept = options.work / f"{group.name}.race.json"
        known = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
        if "protocol" not in known or not decides(*known["ci95"]):
            console.print(f"{number} of {len(groups)}: {group.name} ({group.kind})", highlight=False)
            try:
                row = raced(group, options.work, protocol)
            except (RuntimeError, ValueError) as error:
                errors[group.name] = str(error)
                console.print(f"  {error}", highlight=False, markup=False)
                continue
            kept.write_text(json.dumps(row) + "\n", encoding="utf-8")
        rows.append(json.loads(kept.read_text(encoding="utf-8")))
        console.print(f"  {rows[-1]['ratio']:.3f} {rows[-1]['ci95']}", highlight=False, markup=False)
    report = {
        "schema_version": 1,
        **environment(),
        "threads": threads(),
        "groups": rows,
        "errors": errors,
    }
    report["failed"] = failed(rows)
    print(race_page(report))
    if options.results:
        written(options.results, report, race_page(report), options.note, afresh=True)
    return 1 if report["failed"] or errors else 0


if __name__ == "__main__":
    sys.exit(main())
