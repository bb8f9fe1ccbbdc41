"""Fit the power of the calibration kernel's time by which costs are normalised, on records of the benchmark of regret.

Usage:
    python -m benchmarks.normalising --records FILE.jsonl.xz --work DIR [--results FILE.json]

Kernels of the forty models were measured again minutes later. Where the machine's speed explains the difference, the
calibration kernel beside them differs, too. The power is the slope of one's logarithm over the other's (least squares,
without the largest twentieth), between measurements of a kernel and between the blocks of a measurement. What remains
of the difference is given for several powers, and the slope apart for measurements between which the calibration kernel
changed little or much.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.regret.archive import read_archive
from benchmarks.regret.generator import all_grafted
from benchmarks.regret.work import Work
from collage.store import TuningRecord, block_times_us
from collage.store.normalised import POWER

POWERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
_TRIMMED: Final = 0.95
"""Quantile of the calibration's changes up to which they count: the largest are disturbances of it alone."""
_EDGES: Final = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0)
"""Quantiles of the calibration's changes that bound the rows of the page."""


class Change(NamedTuple):
    """By how much the logarithms of two times changed from one measurement, or block, to another."""

    calibration: float
    kernel: float


def times_of(record: TuningRecord) -> tuple[list[float], list[float]]:
    """Return the logarithms of the calibration kernel's times and of the medians, one of each block."""
    medians = block_times_us(record.samples_us, record.blocks, None)
    return [math.log(block.calibration_us) for block in record.blocks], [math.log(median) for median in medians]


def changes(records: Iterable[TuningRecord]) -> tuple[list[Change], list[Change]]:
    """Return the changes between measurements of one kernel, and between neighbouring blocks of a measurement.

    Args:
        records: What was measured in blocks.
    """
    by_key: dict[Any, list[tuple[float, float]]] = {}
    within: list[Change] = []
    for record in records:
        calibration, kernel = times_of(record)
        by_key.setdefault(record.key, []).append((statistics.median(calibration), statistics.median(kernel)))
        steps = zip(itertools.pairwise(calibration), itertools.pairwise(kernel), strict=True)
        within += [Change(b - a, d - c) for (a, b), (c, d) in steps]
    between = [
        Change(second[0] - first[0], second[1] - first[1])
        for taken in by_key.values()
        for first, second in itertools.combinations(taken, 2)
    ]
    return between, within


def slope(of: Sequence[Change]) -> float:
    """Return the power: least squares through the origin; 0 where the calibration kernel never changed."""
    squares = sum(c.calibration**2 for c in of)
    return sum(c.calibration * c.kernel for c in of) / squares if squares else 0.0


def trimmed(of: Iterable[Change]) -> list[Change]:
    """Return all but the largest changes of the calibration kernel, from the smallest to the largest."""
    ordered = _ordered(of)
    return ordered[: max(1, int(_TRIMMED * len(ordered)))]


def _ordered(of: Iterable[Change]) -> list[Change]:
    return sorted(of, key=lambda each: abs(each.calibration))


def remaining(of: Sequence[Change], power: float) -> dict[str, float]:
    """Return what remains of the kernel's changes: their root mean square, and the median of their size."""
    left = [each.kernel - power * each.calibration for each in of]
    return {
        "power": power,
        "rms": math.sqrt(statistics.fmean(each**2 for each in left)),
        "median": statistics.median(map(abs, left)),
    }


def by_size(of: Sequence[Change]) -> list[dict[str, float]]:
    """Return the power apart for small and large changes of the calibration kernel."""
    ordered = _ordered(of)
    bounds = [round(edge * len(ordered)) for edge in _EDGES]
    parts = [ordered[low:high] for low, high in itertools.pairwise(bounds) if low < high]
    return [{"to": abs(part[-1].calibration), "pairs": len(part), "power": slope(part)} for part in parts]


def found(records: Iterable[TuningRecord]) -> dict[str, Any]:
    """Return everything that the page says, as JSON."""
    between, within = changes(records)
    return {
        "pairs": len(between),
        "between": slope(trimmed(between)),
        "within": slope(trimmed(within)),
        "remaining": [remaining(between, power) for power in POWERS],
        "by_size": by_size(between),
    }


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    how = (
        f"{report['pairs']} pairs of measurements of one kernel, minutes apart. What a kernel takes changes with the "
        f"power {report['between']:.2f} of what the calibration kernel takes, between the blocks of one measurement "
        f"with {report['within']:.2f}. Costs are normalised with {POWER}. Changes are differences of logarithms."
    )
    lines = head("What the calibration kernel tells", report["environment"], how, "one process a toolchain")
    rows = [(f"{e['power']}", f"{e['rms']:.2%}", f"{e['median']:.2%}") for e in report["remaining"]]
    lines += lines_of(("normalised with power", "change left, rms", "median"), rows)
    rows = [(f"{e['to']:.1%}", str(e["pairs"]), f"{e['power']:.2f}") for e in report["by_size"]]
    return "\n".join([*lines, "", *lines_of(("calibration changed by up to", "pairs", "power"), rows)]) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Fit, and return 1 if costs are normalised with another power than what fits best of those on the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.normalising", description=__doc__)
    parser.add_argument("--records", type=Path, required=True, metavar="FILE.jsonl.xz", help="archive of records")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder for databases")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    noting(parser)
    options = parser.parse_args(arguments)
    work = Work(options.work)
    machine = read_archive(options.records, work)
    records: list[TuningRecord] = []
    for name in all_grafted():
        if work.filled(name).is_file():
            with work.store(name) as store:
                records += [each for each in store.all_records() if each.samples_us and each.blocks]
    host = {"cpu": machine.host.cpu, "cores": machine.host.physical_cores, "system": machine.host.system}
    report = {"environment": {**environment(), "host": host}, **found(records)}
    if options.results:
        written(options.results, json.loads(json.dumps(report)), markdown(report), options.note, afresh=True)
    print(markdown(report), end="")
    return 0 if min(report["remaining"], key=lambda each: each["rms"])["power"] == POWER else 1


if __name__ == "__main__":
    sys.exit(main())
