"""Compare `session.run` of whole-model plans with ONNX Runtime's `run` and OpenVINO's compiled model, as called.

Usage:
    python -m benchmarks.run_call [NAME...] --work DIR [--results FILE.json] [--rounds N]

Five models whose outputs take from 1 kB to 88 MB are optimized for one toolchain only, so that the plan is one kernel,
and judged by `benchmarks.harness` against the library alone: separate processes, interleaved. The ratio is of runs as
users call them, arrays in and arrays out, each result kept until the next has come; that of bound calls stands beside.
Existing packages and reports are not made again.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.table import Table

from benchmarks.judge.inputs import beside
from benchmarks.judge.report import rounds_said
from benchmarks.judge.statistics import HALF_WIDTH, decides
from benchmarks.models import MODELS
from benchmarks.models.entry import Entry, images
from benchmarks.models.graph import GraphWriter
from benchmarks.models.segmenter import BLOCKS, inverted_residual, resize
from benchmarks.overhead import JUDGES, command_output
from benchmarks.page import head, lines_of, noting, written

HEADINGS = ("model", "output", "against", "run ms", "plan run ms", "ratio", "95 %", "bound ratio", "95 %", "verdict")
_CONTENDER = "collage=benchmarks/contenders/collage_package.py:model={package}"
_LIMIT = 1.03
"""The upper end of the interval must not be above it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A model and the size of its output.

    Attributes:
        entry: The model.
        nbytes: Size of the output.
    """

    entry: Entry
    nbytes: int


def predictor(name: str, size: int, channels: int, pixels: int) -> Case:
    """Return a dense predictor: the segmenter's body on an image, its logits resized to an output.

    Args:
        name: Name of the model.
        size: Height and width of the image; a multiple of 16.
        channels: Channels of the output.
        pixels: Height and width of the output; 1 for the mean over the image.
    """

    def skeleton() -> onnx.ModelProto:
        g = GraphWriter(name)
        x = g.op("HardSwish", g.conv(g.input("image", [1, 3, size, size]), 16, 3, stride=2))
        for block in BLOCKS:
            x = inverted_residual(g, x, block)
        x = g.op("Relu", g.conv(x, 128))
        if pixels == 1:
            logits = g.conv(g.op("GlobalAveragePool", x), channels)
        else:
            logits = g.conv(x, channels)
            logits = logits if pixels == size // 16 else resize(g, logits, pixels)
        return g.model(logits, rename=["logits"])

    inputs = images("image", 1, 3, size, size)
    entry = Entry(name=name, about="a dense predictor", skeleton=skeleton, inputs=inputs)
    return Case(entry=entry, nbytes=channels * pixels * pixels * 4)


CASES: Mapping[str, Case] = {
    case.entry.name: case
    for case in (
        predictor("scores", 224, 256, 1),
        predictor("features", 512, 32, 32),
        Case(entry=MODELS["super_resolution"], nbytes=3 * 384 * 384 * 4),
        predictor("logits", 512, 21, 512),
        predictor("large_logits", 1024, 21, 1024),
    )
}
"""Models by name, by size of their outputs: 1 kB, 131 kB, 1.8 MB, 22 MB and 88 MB."""


def judged(case: Case, target: str, work: Path, rounds: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Make a plan of a model for one target and return what the judge finds out about it."""
    model = work / f"{case.entry.name}.onnx"
    if not model.exists():
        np.savez(beside(model), **case.entry.make_inputs())  # type: ignore[arg-type]
        model.write_bytes(case.entry.build().SerializeToString(deterministic=True))
    library = JUDGES[target]
    package = work / f"{case.entry.name}-{library}.collage"
    if not package.exists():
        tell(f"{case.entry.name}: optimize for {target}")
        optimize = [sys.executable, "-m", "collage.cli", "optimize", str(model), "-o", str(package)]
        optimize += ["--toolchains", target, "--preset", "quick", "--tuning-db", str(work / "tuning.sqlite")]
        command_output(optimize)
    report = package.with_suffix(".judged.json")
    if not report.exists():
        tell(f"{case.entry.name}: judge {target}")
        command = [sys.executable, "-m", "benchmarks.harness", str(model), "--only", library, "--json", str(report)]
        command_output([*command, "--rounds", str(rounds), "--contender", _CONTENDER.format(package=package)])
    found = json.loads(report.read_text(encoding="utf-8"))
    contenders = {each["name"]: each for each in found["models"][0]["contenders"]}
    plan, alone = contenders["collage"], contenders[library]
    return {
        "model": case.entry.name,
        "output_bytes": case.nbytes,
        "target": target,
        "library_run_ms": alone["as_called"]["latency_ms"]["p50"],
        "plan_run_ms": plan["as_called"]["latency_ms"]["p50"],
        "run": plan["as_called"]["ratio_vs_best_single"],
        "bound": plan["ratio_vs_best_single"],
        "max_error": plan["max_error"],
        "environment": {key: found[key] for key in ("date", "host", "versions", "protocol", "threads")},
    }


def verdict(found: Mapping[str, Any]) -> str:
    """Return `holds`, `slower`, or `not measured` where the interval is too wide."""
    low, high = found["run"]["ci95"]
    if not decides(low, high):
        return "not measured"
    return "holds" if high <= _LIMIT else "slower"


def rows(results: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the results as text under `HEADINGS`."""
    for each in results:
        yield (
            each["model"],
            _size(each["output_bytes"]),
            each["target"],
            f"{each['library_run_ms']:.3f}",
            f"{each['plan_run_ms']:.3f}",
            *_cells(each["run"]),
            *_cells(each["bound"]),
            verdict(each),
        )


def _cells(ratio: Mapping[str, Any]) -> tuple[str, str]:
    return f"{ratio['ratio']:.3f}", f"{ratio['ci95'][0]:.3f} - {ratio['ci95'][1]:.3f}"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:.0f} kB"


def markdown(results: Sequence[Mapping[str, Any]]) -> str:
    """Format the results as a page: the machine, the versions, the table."""
    environment = results[-1]["environment"]
    how = (
        "Each plan is the whole model as one kernel of one toolchain. Its `session.run` against ONNX Runtime's `run` "
        "and OpenVINO's compiled model called with arrays: `benchmarks/harness.py`, "
        f"{rounds_said(environment['protocol'])}, separate processes, interleaved, ratios paired by round. A "
        "result is kept until the next has come. The bound ratio is that of calls bound beforehand. It holds if the "
        f"upper end is at most {_LIMIT}; an interval with a half-width above {HALF_WIDTH:.0%} is not measured."
    )
    title = "session.run against the libraries' own calls"
    lines = head(title, environment, how, f"{environment['threads']} threads")
    return "\n".join([*lines, *lines_of(HEADINGS, rows(results))]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 0 if every comparison holds, else 1, and 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run_call", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--work", type=Path, default=Path("demo-out/run-call"), metavar="DIR", help="folder for files")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    parser.add_argument("--rounds", type=int, default=90, help="rounds of the judge")
    noting(parser)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(CASES)):
        print(f"run_call: no model {', '.join(unknown)}; there are {', '.join(CASES)}", file=sys.stderr)
        return 2
    options.work.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 150)
    results = [
        judged(CASES[name], target, options.work, options.rounds, console.print)
        for name in options.names or CASES
        for target in JUDGES
    ]
    shown = Table(title="session.run against the libraries' own calls")
    for heading in HEADINGS:
        shown.add_column(heading)
    for row in rows(results):
        shown.add_row(*row)
    console.print(shown)
    if options.results:
        report = {"schema_version": 1, "results": results}
        written(options.results, report, markdown(results), options.note, afresh=True)
    return 0 if all(verdict(each) == "holds" for each in results) else 1


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)  # contenders are named relative to it
    sys.exit(main())
