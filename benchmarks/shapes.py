"""Race one package of plans for several input shapes, or for a range, against toolchains with shapes that are free.

Usage:
    python -m benchmarks.shapes [CASE...] --work DIR [--results FILE.json] [--rounds N]

`collage optimize` finds the plans with default options and an empty database, and once more with `--anew` and the
database that this left. Then the outside judge times the package, ONNX Runtime and OpenVINO at several sizes. The
package is one file, loaded whole. The toolchains get the model as it is, with its free dimensions; each process of the
judge runs one size, so what a library caches for a size is warm.

`expected` is over all these sizes, each as often as the others: the sum of the times. Its base is the toolchain whose
sum is least. `called` is as users call it, arrays in and arrays out. `changing` is the same with all sizes in one
process, in a random order, so that each run has another size than the one before. In each round the contenders are in
new processes, which have met all sizes once before they are timed, and take turns, each time with all sizes; ratios are
of the same turn. The sizes of `bert` are the middles of twelve
equally likely parts of a log-normal distribution of lengths, with median 64 and standard deviation 0.8 of the
logarithm, cut to 1 to 512.

Every size that the package is for runs in one session, in a random order; `error` is the largest difference from ONNX
Runtime, relative to the scale of the output. Of classes it is the share that differs: those of two scores that are
equal but for rounding.

Exits with 1 if an output of the package is wrong, if the upper end of the expected ratio is above 1.03 where sizes
change, which is what a package for several is for, or if the second optimization measures anything. Results in DIR are
not computed again.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from rich.console import Console

from benchmarks.judge.contender import CONTENDERS, Contender
from benchmarks.judge.report import write_json
from benchmarks.judge.rounds import Outcome, Protocol, compete
from benchmarks.judge.statistics import Interval, median_interval
from benchmarks.models.__main__ import write_model
from benchmarks.models.pytorch import BERT_VOCABULARY
from benchmarks.models.varying import VARYING
from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.sessions import OWN, SINGLES, answer, in_turns, optimized, session_of

MOST: Final = 1.03
"""Limit of the upper end of the expected ratio where sizes change."""
WRONG: Final = 1e-3
"""Largest error of an output, relative to its scale: plans are in the model's own types."""
ROUNDS: Final = 16
PASSES: Final = 8
"""Processes of each contender in which sizes change, and turns of each, in which it runs every size."""
DYNAMIC: Final[Mapping[str, str]] = {"onnxruntime": "onnxruntime_session.py", "openvino": "openvino_request.py"}


Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]
Times: TypeAlias = Sequence[float] | Sequence[Sequence[float]] | np.ndarray[Any, Any]
"""Microseconds of each round, or of each turn of each round."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model whose sizes vary.

    Attributes:
        model: Name of one of `VARYING`.
        options: What `collage optimize` is given.
        sizes: The sizes that are judged.
        every: The sizes that are compared with ONNX Runtime.
        inputs: Makes inputs of a size.
    """

    model: str
    options: tuple[str, ...]
    sizes: tuple[int, ...]
    every: tuple[int, ...]
    inputs: Callable[[int, np.random.Generator], Arrays]


def images(name: str, *shape: int | None) -> Callable[[int, np.random.Generator], Arrays]:
    """Return what makes an image or a batch; None in the shape stands for the size."""
    return lambda size, random: {
        name: random.standard_normal([size if extent is None else extent for extent in shape], np.float32)
    }


def tokens(size: int, random: np.random.Generator) -> Arrays:
    """Make the inputs of a BERT, of one sequence."""
    return {
        "input_ids": random.integers(0, BERT_VOCABULARY, (1, size)),
        "attention_mask": np.ones((1, size), np.int64),
        "token_type_ids": np.zeros((1, size), np.int64),
    }


def likely_lengths(parts: int, median: float, deviation: float, most: int) -> tuple[int, ...]:
    """Return the middles of equally likely parts of a log-normal distribution, cut to 1 to `most`."""
    normal = statistics.NormalDist(math.log(median), deviation)
    return tuple(min(most, max(1, round(math.exp(normal.inv_cdf((part + 0.5) / parts))))) for part in range(parts))


_BATCHES: Final = (1, 2, 4, 8, 16)


def of_batches(model: str, name: str, side: int) -> Case:
    """Return the case of a model of images whose batch varies.

    Args:
        model: As for `Case`.
        name: The model's input.
        side: Height and width of an image.
    """
    shape = f"[{'|'.join(map(str, _BATCHES))},3,{side},{side}]"
    inputs = images(name, None, 3, side, side)
    return Case(
        model=model, options=("--input-shapes", f"{name}:{shape}"), sizes=_BATCHES, every=_BATCHES, inputs=inputs
    )


_SIDES: Final = tuple(range(320, 641, 32))
CASES: Final[Mapping[str, Case]] = {
    "cnn": of_batches("mobilenet_v2", "pixel_values", 224),
    "segmenter": of_batches("segmenter_any_batch", "image", 256),
    "bert": Case(
        model="bert_base_6_dynamic",
        options=("--input-shapes", "input_ids:[1,1..512]", "--buckets", "2"),
        sizes=likely_lengths(12, 64, 0.8, 512),
        every=tuple(range(1, 513)),
        inputs=tokens,
    ),
    "detector": Case(
        model="fcos_detector",
        options=("--input-shapes", "image:[1,3,320..640,320..640]"),
        sizes=_SIDES,
        every=_SIDES,
        inputs=images("image", 1, 3, None, None),
    ),
}


def contenders(folder: Path) -> list[Contender]:
    """Return the toolchains with free shapes, and the package."""
    singles = [
        Contender(name=name, file=CONTENDERS / file, options={"dynamic": "true"}, kind="single")
        for name, file in DYNAMIC.items()
    ]
    package = {"model": str(folder / "model.collage")}
    return [*singles, Contender(name=OWN, file=CONTENDERS / "collage_package.py", options=package)]


def judged(case: Case, folder: Path, outputs: Sequence[str], protocol: Protocol) -> dict[int, list[Outcome]]:
    """Time everything at each size."""
    random = np.random.default_rng(0)
    found = {}
    for size in case.sizes:
        found[size] = compete(folder / "model.onnx", case.inputs(size, random), outputs, contenders(folder), protocol)
    return found


def passes(case: Case, name: str, folder: Path) -> Iterator[list[float]]:
    """Run all sizes, then each in a random order several times; yield the microseconds of each, by size."""
    random = np.random.default_rng(2)
    feeds = {size: case.inputs(size, random) for size in case.sizes}
    call = session_of(name, folder)
    for size in case.sizes:
        call(feeds[size])
    yield []
    while True:
        times_us: dict[int, float] = {}
        for size in map(int, random.permutation(case.sizes)):
            began = time.perf_counter()
            call(feeds[size])
            times_us[size] = (time.perf_counter() - began) * 1e6
        yield [times_us[size] for size in case.sizes]


def changing(case: str, folder: Path, rounds: int) -> dict[str, list[list[list[float]]]]:
    """Time all sizes in one process; return the times of each turn by contender, size and round.

    Raises:
        RuntimeError: If a process fails.
    """
    found: dict[str, list[list[list[float]]]] = {name: [] for name in (OWN, *SINGLES)}
    for _ in range(rounds):
        for name, times_us in in_turns("benchmarks.shapes", folder, list(found), PASSES, case).items():
            found[name].append(times_us)
    return {name: np.transpose(times, (2, 0, 1)).tolist() for name, times in found.items()}


def compared(case: Case, folder: Path) -> float:
    """Run every size in one session; return the largest difference from ONNX Runtime."""
    import onnxruntime

    import collage

    session = collage.load(folder / "model.collage")
    other = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    random, largest = np.random.default_rng(1), 0.0
    for size in random.permutation(case.every):
        feeds = case.inputs(int(size), random)
        for made, right in zip(session.run(None, feeds), other.run(None, feeds), strict=True):
            largest = max(largest, difference(made, right))
    return largest


def difference(made: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> float:
    """Return the largest difference of an output, relative to its scale; of integers the share that differs.

    Examples:
        >>> difference(np.array([1.0, 2.0]), np.array([1.0, 4.0])), difference(np.array([3, 7]), np.array([3, 1]))
        (0.5, 0.5)
    """
    if made.shape != right.shape or made.dtype != right.dtype:
        return math.inf
    if right.dtype.kind != "f":
        return float(np.mean(made != right)) if right.size else 0.0
    scale = float(np.abs(right).max(initial=0)) or 1.0
    found = float(np.abs(made.astype(float) - right).max(initial=0)) / scale
    return math.inf if math.isnan(found) else found


def medians_us(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each round."""
    return [float(np.median(samples)) for samples in rounds]


def ratio_of(own: Times, other: Times) -> Interval:
    """Return the ratio of two contenders over rounds; that of a round with several turns is the median over these."""
    ratios = np.asarray(own) / np.asarray(other)
    return median_interval([float(np.median(each)) for each in ratios])


def expected(times_us: Mapping[str, Sequence[Times]]) -> tuple[str, Interval]:
    """Return the toolchain that takes least over all sizes, and the ratio of the package to it.

    Args:
        times_us: By contender, for each size the median of each round, or the times of each turn of each round; all
            have as many rounds.

    Examples:
        >>> base, ratio = expected({"collage": [[1.0, 1.0], [2.0, 2.0]], "a": [[2.0, 2.0], [2.0, 2.0]]})
        >>> base, ratio.value
        ('a', 0.75)
    """
    sums = {name: np.sum(np.asarray(sizes), axis=0) for name, sizes in times_us.items()}
    base = min((name for name in sums if name != OWN), key=lambda name: float(np.median(sums[name])))
    return base, ratio_of(sums[OWN], sums[base])


def result_of(case: Case, folder: Path, protocol: Protocol) -> dict[str, Any]:
    """Find plans for one case and have them judged."""
    entry = VARYING[case.model]
    write_model(folder / "model.onnx", entry.build(), entry.make_inputs())
    cold, anew = (optimized(case.options, folder, anew=each) for each in (False, True))
    import onnx

    outputs = [each.name for each in onnx.load(folder / "model.onnx", load_external_data=False).graph.output]
    outcomes = judged(case, folder, outputs, protocol)
    by_name = {name: [_of(name, outcomes[size], size) for size in case.sizes] for name in (OWN, *DYNAMIC)}
    times = {
        way: {name: [medians_us(getattr(each, field)) for each in sizes] for name, sizes in by_name.items()}
        for way, field in (("bound", "rounds_us"), ("called", "called_us"))
    }
    errors = [each.max_error for each in by_name[OWN]]
    return {
        "sizes": list(case.sizes),
        "cold": cold,
        "anew": anew,
        "times_us": times,
        "errors": errors,
        "compared": len(case.every),
        "error": compared(case, folder),
        "package_bytes": (folder / "model.collage").stat().st_size,
        "model_bytes": (folder / "model.onnx").stat().st_size,
    }


def _of(name: str, outcomes: Sequence[Outcome], size: int) -> Outcome:
    """Return the outcome of a contender.

    Raises:
        RuntimeError: If it failed.
    """
    [found] = [each for each in outcomes if each.contender.name == name]
    if found.failed:
        raise RuntimeError(f"{name} failed at size {size}: {found.failed}")
    return found


def rows(name: str, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a case: one for each size, and what is expected over all."""
    made = []
    for number, size in enumerate(result["sizes"]):
        cells = [name, str(size)]
        for times in result["times_us"].values():
            own = times[OWN][number]
            base = min(DYNAMIC, key=lambda each: float(np.median(times[each][number])))
            ratio = ratio_of(own, times[base][number])
            cells += [
                f"{np.median(own) / 1e3:.3f}",
                *(f"{np.median(times[each][number]) / 1e3:.3f}" for each in DYNAMIC),
            ]
            cells += [f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"]
        cells += [f"{result['errors'][number]:.1e}"]
        made.append(tuple(cells))
    cells = [name, "expected"]
    for times in result["times_us"].values():
        base, ratio = expected(times)
        sums = [float(np.median(np.sum(times[each], axis=0))) / 1e3 for each in (OWN, *DYNAMIC)]
        cells += [*(f"{each:.2f}" for each in sums), f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of {base}"]
    return [*made, (*cells, f"{result['error']:.1e} of {result['compared']} sizes")]


def plan_rows(name: str, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the rows of a case in the table of plans."""
    made: list[tuple[str, ...]] = []
    for each in result["cold"]["plans"]:
        shapes = ", ".join(f"{key} {value}" for key, value in each["shapes"].items()).replace("'", "") or "all"
        plan = ", ".join(f"{target}: {nodes}" for target, nodes in each["plan"])
        made.append((name, shapes, f"{each['measured']} + {each['known']}", f"{each['seconds']:.0f}", plan))
    return made


HEADINGS: Final = (
    "case",
    "size",
    *itertools.chain.from_iterable(
        (f"{way}plan ms", *(f"{way}{name} ms" for name in DYNAMIC), f"{way}ratio")
        for way in ("", "called: ", "changing: ")
    ),
    "error",
)


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    paragraphs = (__doc__ or "").split("\n\n")[2:-1]
    how = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    lines = head("Several input shapes", report["environment"], how, "one process for each contender and size")
    lines += lines_of(HEADINGS, [row for name, result in report["cases"].items() for row in rows(name, result)])
    lines.append("")
    plans = [row for name, result in report["cases"].items() for row in plan_rows(name, result)]
    lines += lines_of(("case", "plan for", "measured + known", "seconds", "plan: nodes"), plans)
    for name, result in report["cases"].items():
        again = sum(each["measured"] for each in result["anew"]["plans"])
        lines += [
            "",
            f"{name}: the package has {result['package_bytes'] / 1e6:.1f} MB, the model "
            f"{result['model_bytes'] / 1e6:.1f} MB. It took {result['cold']['seconds']:.0f} s. Optimized again with "
            f"the same database, {again} candidates are measured, in {result['anew']['seconds']:.0f} s.",
        ]
    return "\n".join(lines) + "\n"


def exceeded(report: Mapping[str, Any]) -> list[str]:
    """Return what is not as it has to be, as sentences."""
    wrong = []
    for name, result in report["cases"].items():
        base, ratio = expected(result["times_us"]["changing"])
        if ratio.high > MOST:
            wrong.append(f"{name}: {ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}] of {base}")
        errors = (*result["errors"], result["error"])
        wrong += [f"{name}: an error of {error:.1e}" for error in errors if not error <= WRONG]
        if any(each["measured"] for each in result["anew"]["plans"]):
            wrong.append(f"{name}: the second optimization measures")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all cases and print; return 1 if something is not as it has to be."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="CASE", help=f"default: {', '.join(CASES)}")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    noting(parser)
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in CASES]:
        parser.error(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    if options.contender:
        answer(passes(CASES[options.names[0]], options.contender, options.work))
        return 0
    # Each size has processes of its own. What is reported are sums over sizes, which average how these differ.
    protocol = Protocol(threads=len(os.sched_getaffinity(0)), rounds=options.rounds, process_rounds=None)
    cases = {}
    for name in options.names or CASES:
        folder = options.work / name
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "result.json"
        if not kept.exists():
            write_json(kept, result_of(CASES[name], folder, protocol))
        also = folder / "changing.json"
        if not also.exists():
            write_json(also, changing(name, folder, ROUNDS))
        cases[name] = json.loads(kept.read_text(encoding="utf-8"))
        cases[name]["times_us"]["changing"] = json.loads(also.read_text(encoding="utf-8"))
    report = {"environment": environment(), "cases": cases}
    page = markdown(report)
    Console(width=200).print(page, markup=False)
    if options.results is not None:
        written(options.results, report, page, options.note)
    for each in (wrong := exceeded(report)):
        print(each, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
