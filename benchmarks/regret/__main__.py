"""Measure the regret of the default search: what it loses against the best plan anybody knows.

Usage:
    python -m benchmarks.regret models --out DIR [NAME...]
    python -m benchmarks.regret fill --work DIR [NAME...]
    python -m benchmarks.regret replay --work DIR [NAME...] [--results FILE.json] [--no-measuring | --records FILE]
    python -m benchmarks.regret export --work DIR --records FILE.jsonl.xz
    python -m benchmarks.regret race --work DIR [NAME...] [--most N] [--rounds N] [--results FILE.json]

`fill` measures a database for each model, by the exhaustive search with the preset `extensive`. `replay` runs the
default search and the exhaustive one over each database, and over resamplings of its samples: measurements are
served from the database; what it lacks is measured and added. The plan that a search keeps and the best known plan
are compared at long-run costs, each the median of all measurements of a kernel. Of records from elsewhere, the machine
that is named is the one that they were made on. `race` has the independent judge time the best known plan and the
package that `collage optimize` makes by default, on the models with most at stake. `export` writes all records to one
file, over which anybody with the same versions of the toolchains may replay. What is filled already is not filled
again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.judge.rounds import PATIENCE, Protocol
from benchmarks.page import environment, noting, written
from benchmarks.regret import pages
from benchmarks.regret.archive import read_archive, write_archive
from benchmarks.regret.filling import filled
from benchmarks.regret.generator import Grafted, all_grafted
from benchmarks.regret.race import raced
from benchmarks.regret.replaying import replayed, verdict
from benchmarks.regret.searches import CANDIDATES
from benchmarks.regret.work import Work
from benchmarks.replay.bench import Bench
from collage.store import Purpose, TuningStore


def write_models(models: Sequence[Grafted], folder: Path) -> int:
    """Write models with their inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    for model in models:
        print(model.write(folder))
    return 0


def fill(models: Sequence[Grafted], work: Work, console: Console) -> int:
    """Fill the databases that are not filled yet."""
    for number, model in enumerate(models, start=1):
        if work.filled(model.name).is_file():
            continue
        console.print(f"{number} of {len(models)}: {model.name}", highlight=False)
        with work.bench(model, loud=True) as bench, work.store(model.name) as store:
            took = filled(bench, store, work.known(model.name))
        work.filled(model.name).write_text(json.dumps(took) + "\n", encoding="utf-8")
        console.print(
            f"{model.name}: {took['candidates']} candidates, {took['measured']} measurements in "
            f"{took['exhaustive_seconds']} s, all in {took['seconds']} s",
            highlight=False,
        )
    return 0


def replay(models: Sequence[Grafted], work: Work, console: Console, options: argparse.Namespace) -> int:
    """Replay the searches of all models whose database is filled; 1 if the figures do not hold, 2 for misuse."""
    machine = None if options.records is None else read_archive(options.records, work)
    results: list[dict[str, Any]] = []
    for model in models:
        if not work.filled(model.name).is_file():
            console.print(f"{model.name} is not filled: `fill` it first", highlight=False)
            continue
        with work.bench(model, machine=machine) as bench, work.store(model.name) as store:
            if other := missing_fingerprints(bench, store):
                console.print(f"{model.name} was measured with other versions: {other}", highlight=False)
                return 2
            live: tuple[Purpose, ...] = () if machine or options.no_measuring else CANDIDATES
            results.append(replayed(bench, store, work.known(model.name), live=live))
        console.print("  ".join(pages.row(results[-1])), highlight=False, markup=False)
    if not results:
        return 1
    said = verdict(results)
    report = {"schema_version": 1, **environment(), "models": results, "failed": said}
    if machine is not None:
        report["host"] |= {
            "system": machine.host.system,
            "cpu": machine.host.cpu,
            "cores": machine.host.physical_cores,
        }
    work.replayed.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    if options.results:
        written(options.results, report, pages.markdown(report), options.note, afresh=True)
    console.print(pages.conclusion(report), highlight=False, markup=False)
    return 1 if said or len(results) < len(models) else 0


def missing_fingerprints(bench: Bench, store: TuningStore) -> str:
    """Return the versions a database is of, where it knows nothing of those installed; empty otherwise."""
    held = set(store.stats().fingerprints)
    wanted = {target.fingerprint for target in bench.place.targets()}
    return "" if wanted <= held else ", ".join(sorted(held))


def export(work: Work, file: Path, console: Console) -> int:
    """Write the records of all filled databases to a file; 1 if there are none."""
    models = [model for model in all_grafted().values() if work.filled(model.name).is_file()]
    if not models:
        console.print("no database is filled", highlight=False)
        return 1
    with work.bench(models[0]) as bench:
        machine = bench.machine
    write_archive(file, work, [model.name for model in models], machine)
    console.print(f"{file}: {len(models)} models, {file.stat().st_size / 1e6:.1f} MB", highlight=False)
    return 0


def race(work: Work, console: Console, options: argparse.Namespace) -> int:
    """Race the plans of the models with most at stake; 1 if the figures do not hold."""
    report = json.loads(work.replayed.read_text(encoding="utf-8"))
    found = sorted(report["models"], key=lambda each: (-each["stake"], each["name"]))[: options.most]
    if options.names:
        found = [each for each in report["models"] if each["name"] in options.names]
    models = all_grafted()
    protocol = Protocol(threads=len(os.sched_getaffinity(0)), rounds=options.rounds, patience=PATIENCE)
    results = []
    for each in found:
        model = models[each["name"]]
        with work.bench(model) as bench, work.store(model.name) as store:
            results.append(raced(bench, store, work.known(model.name), protocol))
        console.print("  ".join(pages.raced_row(results[-1])), highlight=False, markup=False)
    said = pages.lost(results)
    document = {"schema_version": 1, **environment(), "protocol": dataclasses.asdict(protocol)}
    document |= {"models": results, "failed": said}
    if options.results:
        written(options.results, document, pages.raced_markdown(document), options.note, afresh=True)
    console.print("; ".join(said) or "holds", highlight=False, markup=False)
    return 1 if said else 0


def parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    result = argparse.ArgumentParser(prog="python -m benchmarks.regret", description=__doc__)
    commands = result.add_subparsers(dest="command", required=True)
    for name in ("models", "fill", "replay", "race", "export"):
        command = commands.add_parser(name)
        if name != "export":
            default = "those with most at stake" if name == "race" else "all forty"
            command.add_argument("names", nargs="*", metavar="NAME", help=f"models; default: {default}")
        if name == "models":
            command.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write to")
        else:
            command.add_argument("--work", type=Path, required=True, metavar="DIR", help="models and databases")
        if name in ("replay", "race"):
            command.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there")
            noting(command)
        if name == "replay":
            command.add_argument(
                "--records", type=Path, metavar="FILE", help="add what `export` wrote; measure nothing"
            )
            command.add_argument("--no-measuring", action="store_true", help="make up what databases lack, or fail")
        if name == "export":
            command.add_argument("--records", type=Path, required=True, metavar="FILE.jsonl.xz", help="write there")
        if name == "race":
            command.add_argument("--most", type=int, default=10, metavar="N", help="models with most at stake")
            command.add_argument("--rounds", type=int, default=90, metavar="N", help="rounds of the judge, at least")
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return 1 if what it finds does not hold, 2 for misuse."""
    options = parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    if options.command == "export":
        return export(Work(options.work), options.records, console)
    known = all_grafted()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        print(f"regret: there is no model {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    if options.command == "race":
        return race(Work(options.work), console, options)
    models = [known[name] for name in options.names or known]
    if options.command == "models":
        return write_models(models, options.out)
    work = Work(options.work)
    if options.command == "fill":
        return fill(models, work, console)
    return replay(models, work, console, options)


if __name__ == "__main__":
    sys.exit(main())
