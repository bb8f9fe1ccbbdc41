"""Run ONNX's node tests on each backend, and make the table of results.

Usage:
    python -m benchmarks.onnx_nodes run [BACKEND...] --work DIR [--only REGEX] [--limit S] [--share I/N] [--again]
    python -m benchmarks.onnx_nodes table --work DIR [--results FILE.json] [--page FILE.md]

Backends: collage, onnxruntime, reference; all by default. Outcomes are appended to `DIR/BACKEND.jsonl` as
they come, and existing ones are not run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from benchmarks.onnx_nodes.cases import Outcome, operators
from benchmarks.onnx_nodes.driver import run_cases
from benchmarks.onnx_nodes.table import document, page

BACKENDS = ("collage", "onnxruntime", "reference")
HERE = Path(__file__).parents[1]


def outcomes(path: Path) -> dict[str, Outcome]:
    """Read a file of outcomes, keeping the latest outcome of each case."""
    found: dict[str, Outcome] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            found[fields["name"]] = Outcome(**{**fields, "toolchains": tuple(fields["toolchains"])})
    return found


def run(
    backend: str, work: Path, *, only: str = "", limit_s: float = 60.0, again: bool = False, share: str = "1/1"
) -> dict[str, Outcome]:
    """Run the cases that have no outcome yet.

    Args:
        backend: One of `BACKENDS`.
        work: Directory of the files of outcomes.
        only: Regular expression that selects cases by name; all if empty.
        limit_s: Time limit of each case, in seconds.
        again: Whether to rerun cases that have an outcome.
        share: `"1/2"` and `"2/2"` are halves, to be run side by side.
    """
    path = work / f"{backend}.jsonl"
    work.mkdir(parents=True, exist_ok=True)
    known = {} if again else outcomes(path)
    part, parts = map(int, share.split("/"))
    names = [name for name in operators() if re.search(only, name) and name not in known][part - 1 :: parts]
    counts: Counter[str] = Counter()
    with path.open("a", encoding="utf-8") as stream:
        for outcome in run_cases(backend, names, limit_s):
            print(json.dumps(dataclasses.asdict(outcome)), file=stream, flush=True)
            known[outcome.name] = outcome
            counts[outcome.status] += 1
            if outcome.status != "pass":
                print(f"{backend}: {outcome.name}: {outcome.status}: {outcome.reason}", flush=True)
    print(f"{backend}: {dict(counts)}", flush=True)
    return known


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.onnx_nodes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("backends", nargs="*", metavar="BACKEND")
    running.add_argument("--work", type=Path, required=True)
    running.add_argument("--only", default="")
    running.add_argument("--limit", type=float, default=60.0)
    running.add_argument("--again", action="store_true")
    running.add_argument("--share", default="1/1")
    table = commands.add_parser("table")
    table.add_argument("--work", type=Path, required=True)
    table.add_argument("--results", type=Path, default=HERE / "results" / "onnx-node-tests.json")
    table.add_argument("--page", type=Path, default=HERE.parent / "docs" / "generated" / "onnx-node-tests.md")
    options = parser.parse_args(arguments)
    if options.command == "run":
        for backend in options.backends or BACKENDS:
            run(
                backend,
                options.work,
                only=options.only,
                limit_s=options.limit,
                again=options.again,
                share=options.share,
            )
        return
    found = document(operators(), {backend: outcomes(options.work / f"{backend}.jsonl") for backend in BACKENDS})
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    options.page.write_text(page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
