r"""Time inference toolchains, and anything else, on ONNX models: the independent judge.

Usage:
    python -m benchmarks.harness MODEL.onnx [MODEL.onnx ...] [--json FILE]
    python -m benchmarks.harness segmenter.onnx --contender \
        plan=benchmarks/contenders/collage_package.py:model={name}.collage

It uses ONNX Runtime and OpenVINO directly and imports nothing of Collage. Each contender runs in a
process of its own, a new one every few rounds; in each round every one runs a burst while the others
are blocked on their pipes, in shuffled order. The ratio of each contender to the best tuned single
toolchain is paired per round.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from rich.console import Console

if __package__ in (None, ""):  # Run as a file: make `benchmarks` importable, not its parts.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from benchmarks.judge import inputs as judged_inputs
from benchmarks.judge import report
from benchmarks.judge.contender import Contender, built_in, parse
from benchmarks.judge.rounds import PATIENCE, PROCESS_ROUNDS, Protocol, compete


def parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    known = built_in()
    result = argparse.ArgumentParser(
        prog="python -m benchmarks.harness",
        description="Time toolchains and other contenders on ONNX models, in rounds.",
    )
    result.add_argument("models", nargs="+", type=Path, metavar="MODEL.onnx")
    result.add_argument(
        "--only",
        metavar="A,B",
        help=f"built-in contenders to run, of: {', '.join(known)} (default: all)",
    )
    result.add_argument(
        "--contender",
        action="append",
        default=[],
        metavar="NAME=FILE.py[:key=value,...]",
        help="another contender; its option `model` is the path it loads, with {name} for the "
        "judged model's name (repeatable)",
    )
    result.add_argument("--inputs", type=Path, help="inputs as .npz (default: MODEL.inputs.npz, else random)")
    result.add_argument("--seed", type=int, default=0, help="seed of random inputs")
    result.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    result.add_argument("--rounds", type=int, default=120, help="rounds that count, at least")
    result.add_argument(
        "--process-rounds",
        type=int,
        default=PROCESS_ROUNDS,
        help=f"rounds after which contenders are started anew (default: {PROCESS_ROUNDS}; 0: never)",
    )
    result.add_argument(
        "--patience", type=int, default=PATIENCE, help="times as many rounds at most, until ratios are known well"
    )
    result.add_argument("--seconds", type=float, default=0.04, help="least duration of a burst")
    result.add_argument("--deadline", type=float, default=300.0, help="seconds for a setup or burst")
    result.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    return result


def contenders_of(only: str | None, others: Sequence[str]) -> list[Contender]:
    """Return the contenders that the options name.

    Raises:
        ValueError: If a name is unknown or used twice, or an option cannot be parsed.
    """
    known = built_in()
    names = list(known) if only is None else [name for name in only.split(",") if name]
    for name in names:
        if name not in known:
            raise ValueError(f"no built-in contender {name!r}; there are {', '.join(known)}")
    result = [known[name] for name in names] + [parse(text) for text in others]
    used = [contender.name for contender in result]
    if len(set(used)) != len(used):
        raise ValueError(f"two contenders have the same name: {', '.join(used)}")
    if not result:
        raise ValueError("there is no contender")
    return result


def judge(
    path: Path,
    contenders: Sequence[Contender],
    protocol: Protocol,
    *,
    inputs: Path | None,
    seed: int,
    console: Console,
) -> dict[str, Any]:
    """Run one model's comparison, print its table, return its part of the report."""
    proto = onnx.load(path, load_external_data=False)
    file = inputs or judged_inputs.beside(path)
    values = judged_inputs.read(file) if file.is_file() else judged_inputs.random(proto, seed)
    model = {
        "name": path.stem,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "nodes": len(proto.graph.node),
        "inputs": {name: [str(array.dtype), *array.shape] for name, array in values.items()},
    }
    names = [output.name for output in proto.graph.output]
    with console.status(path.stem) as status:
        outcomes = compete(
            path,
            values,
            names,
            contenders,
            protocol,
            tell=lambda line: status.update(f"{path.stem}: {line}"),
        )
    summary = report.summarise(model, outcomes)
    report.show(summary, console)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the harness; 2 for misuse, 1 if on some model no single toolchain ran."""
    options = parser().parse_args(arguments)
    console = Console()
    try:
        contenders = contenders_of(options.only, options.contender)
        protocol = Protocol(
            threads=options.threads,
            rounds=options.rounds,
            process_rounds=options.process_rounds or None,
            patience=options.patience,
            seconds=options.seconds,
            deadline_s=options.deadline,
        )
        for path in filter(None, [*options.models, options.inputs]):
            if not path.is_file():
                raise ValueError(f"there is no file {str(path)!r}")
    except ValueError as error:
        print(f"harness: {error}", file=sys.stderr)
        return 2
    summaries = []
    for path in options.models:
        summaries.append(
            judge(
                path,
                contenders,
                protocol,
                inputs=options.inputs,
                seed=options.seed,
                console=console,
            )
        )
        if options.json:  # After each model, so that an interrupted run keeps what it has.
            report.write_json(options.json, report.document(summaries, protocol))
    return 0 if all(any("latency_ms" in c for c in s["contenders"]) for s in summaries) else 1


if __name__ == "__main__":
    sys.exit(main())
