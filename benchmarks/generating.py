"""Race a package with toolchains in generating tokens: GPT-2, one token at a time, with a cache that grows.

Usage:
    python -m benchmarks.generating --work DIR [--results FILE.json] [--rounds N]

`collage optimize` finds a plan for caches of 0 to 127 tokens with default options and an empty database. Then each
contender generates three texts of 64 tokens, each from one given token, always the likeliest next one, as users call
it: arrays in, arrays out, and the keys and values of one call are inputs of the next. In each round they are in new
processes and take turns, eight tokens at a time; a ratio is of the same eight tokens, and that of a round the median. A
token's time is from the call to its return; the first ones of a text are left out, in which a library still prepares.
Each step of a process's first text has a length that is new to it; later texts repeat these.

The tokens have to be those of ONNX's own evaluator. Exits with 1 if they are not, or if the upper end of a ratio to
the faster toolchain is above 1.03.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console

from benchmarks.judge.report import write_json
from benchmarks.judge.statistics import Interval, median_interval
from benchmarks.models.__main__ import write_model
from benchmarks.models.varying import VARYING, gpt2_inputs
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.sessions import OWN, SINGLES, Call, answer, in_turns, optimized, session_of

MOST: Final = 1.03
"""Limit of the upper end of each ratio."""
TOKENS: Final = 64
TEXTS: Final = 3
FIRST: Final = 4
"""Tokens of a text that are left out of the times."""
TURN: Final = 8
"""Tokens that a contender generates until it is another's turn."""
PARTS: Final = ("first", "later")
"""Which texts of a process: the times of each have a ratio of their own."""
MODULE: Final = "benchmarks.generating"
MODEL: Final = "gpt2_6_with_past"
OPTIONS: Final = ("--input-shapes", "past_0_key:[1,12,0..127@40,64]")


def generated(step: Call, text: int = 0) -> Iterator[tuple[int, float]]:
    """Generate a text's tokens, each with the microseconds of its step.

    Args:
        step: Computes the logits, and all keys and values.
        text: Number of the text, which decides on its first token.
    """
    feeds = gpt2_inputs(np.random.default_rng(text), past=0)
    names = [name for name in feeds if name != "input_ids"]
    for _ in range(TOKENS):
        began = time.perf_counter()
        logits, *kept = step(feeds)
        took_us = (time.perf_counter() - began) * 1e6
        token = int(np.argmax(logits[0, -1]))
        yield token, took_us
        feeds = {"input_ids": np.array([[token]]), **dict(zip(names, kept, strict=True))}


def turns(contender: str, folder: Path) -> Iterator[list[tuple[int, float]]]:
    """Yield nothing once a contender is ready, then the steps of all texts, as of `generated`, by turn."""
    step = session_of(contender, folder)
    yield []
    for text in range(TEXTS):
        steps = generated(step, text)
        for _ in range(TOKENS // TURN):
            yield list(itertools.islice(steps, TURN))


def result_of(folder: Path, rounds: int) -> dict[str, Any]:
    """Find a plan, and have all contenders generate in turns."""
    entry = VARYING[MODEL]
    write_model(folder / "model.onnx", entry.build(), entry.make_inputs())
    found = optimized(OPTIONS, folder)
    number = TEXTS * TOKENS // TURN
    [right] = (tokens_of(each) for each in in_turns(MODULE, folder, ["reference"], number).values())
    names = [OWN, *SINGLES]
    times_us: dict[str, dict[str, list[list[float]]]] = {part: {name: [] for name in names} for part in PARTS}
    same: dict[str, bool] = dict.fromkeys(names, True)
    for _ in range(rounds):
        for name, made in in_turns(MODULE, folder, names, number).items():
            first, later = medians_us(made)
            times_us["first"][name].append(first)
            times_us["later"][name].append(later)
            same[name] &= tokens_of(made) == right
    return {"optimize": found, "times_us": times_us, "same": same, "tokens": right}


def tokens_of(made: Sequence[Sequence[tuple[int, float]]]) -> list[int]:
    """Return the tokens of all turns."""
    return [token for turn in made for token, _ in turn]


def medians_us(made: Sequence[Sequence[tuple[int, float]]]) -> tuple[list[float], list[float]]:
    """Return the median step of each turn, of the first text and of the later ones, without the first of each text.

    Examples:
        >>> turn = [(7, 900.0)] * FIRST + [(7, 20.0)] * (TURN - FIRST)
        >>> first, later = medians_us([turn] * (TEXTS * TOKENS // TURN))
        >>> len(first), len(later), first[0], first[1]
        (8, 16, 20.0, 460.0)
    """
    a_text = TOKENS // TURN
    found = [
        float(np.median([took_us for _, took_us in turn[0 if number % a_text else FIRST :]]))
        for number, turn in enumerate(made)
    ]
    return found[:a_text], found[a_text:]


def ratio_of(result: Mapping[str, Any], part: str) -> tuple[str, Interval]:
    """Return the toolchain that is faster in a part, and the ratio of the package to it.

    A round's ratio is the median over its turns.
    """
    times = result["times_us"][part]
    base = min(SINGLES, key=lambda name: float(np.median(times[name])))
    return base, median_interval([float(ratio) for ratio in np.median(np.divide(times[OWN], times[base]), axis=1)])


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    paragraphs = (__doc__ or "").split("\n\n")[2:-1]
    how = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    lines = head("Generating tokens", report["environment"], how, "a new process for each contender and round")
    result = report["result"]
    rows = []
    for name, same in result["same"].items():
        row = [name]
        for part in PARTS:
            row += [
                f"{np.median(result['times_us'][part][name]) / 1e3:.2f}",
                _said(result, part) if name == OWN else "",
            ]
        rows.append((*row, "yes" if same else "no"))
    columns = ("contender", "first text: ms a token", "ratio", "later: ms a token", "ratio", "the reference's tokens")
    lines += lines_of(columns, rows)
    found = result["optimize"]
    [one] = found["plans"]
    plan = ", ".join(f"{target}: {nodes}" for target, nodes in one["plan"])
    lines += ["", f"{one['measured']} candidates were measured in {found['seconds']:.0f} s. Plan: {plan} nodes."]
    return "\n".join(lines) + "\n"


def _said(result: Mapping[str, Any], part: str) -> str:
    base, ratio = ratio_of(result, part)
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of {base}"


def exceeded(report: Mapping[str, Any]) -> list[str]:
    """Return what is not as it has to be, as sentences."""
    result = report["result"]
    wrong = [f"{part}: {_said(result, part)}" for part in PARTS if ratio_of(result, part)[1].high > MOST]
    if not result["same"][OWN]:
        wrong.append("other tokens than the reference's")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Race and print; return 1 if something is not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generating", description=__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    noting(parser)
    options = parser.parse_args(arguments)
    if options.contender:
        answer(turns(options.contender, options.work))
        return 0
    options.work.mkdir(parents=True, exist_ok=True)
    kept = options.work / "result.json"
    if not kept.exists():
        write_json(kept, result_of(options.work, options.rounds))
    report = {"environment": environment(), "result": json.loads(kept.read_text(encoding="utf-8"))}
    page = markdown(report)
    Console(width=160).print(page, markup=False)
    if options.results is not None:
        written(options.results, report, page, options.note)
    for each in (wrong := exceeded(report)):
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
