"""Compare ways to bring the rounds of a race to the machine's usual speed, on what tuning databases recorded.

Usage:
    python -m benchmarks.race_normalising --work DIR [--results FILE.json]

In the first rounds of a race each kernel of a plan is timed in its place; in all rounds the whole plan is. At one speed
of the machine the plan takes what its kernels take in sum. So the way is best by which the two differ least, over all
plans of several kernels that raced. DIR holds the databases that `benchmarks.suite` left.
"""

from __future__ import annotations

import argparse
import math
import operator
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.page import environment, head, lines_of, noting, written
from benchmarks.recorded_races import races_in
from collage.decide.timed import Timed

_USUAL_US: Final = 100.0
"""What the calibration kernel usually takes. Any time will do: the plan and its kernels are scaled alike."""
Reduce: TypeAlias = Callable[[Sequence[float], Sequence[float]], float]
"""From the times of rounds, and the calibration kernel's beside them, to one time."""


def _root_of_all(times: Sequence[float], calibrations: Sequence[float]) -> float:
    return statistics.median(times) / math.sqrt(statistics.median(calibrations))


def _all_of_each(times: Sequence[float], calibrations: Sequence[float]) -> float:
    relative: float = statistics.median(map(operator.truediv, times, calibrations))
    return relative


def _root_of_each(times: Sequence[float], calibrations: Sequence[float]) -> float:
    relative: float = statistics.median(map(operator.truediv, times, map(math.sqrt, calibrations)))
    return relative


WAYS: Final[Mapping[str, Reduce]] = {
    "not at all": lambda times, _: statistics.median(times),
    "all rounds by the root of the calibration's median": _root_of_all,
    "each round by the root of its calibration": _root_of_each,
    "each round by all of its calibration": _all_of_each,
}
OWN: Final = "as races are: each round by all of it, their median by the root"


def plans(databases: Iterable[Path]) -> list[tuple[str, Timed]]:
    """Return the plans of several kernels that raced with the calibration kernel beside them, with the model's name."""
    found = []
    for path in databases:
        for _, race in races_in(path):
            for key, calibrations in race["calibrations_us"].items():
                parts = race["parts_us"].get(key, [])
                if not parts or len(parts[0]) < 2:
                    continue
                plan = Timed(
                    name=key,
                    single=False,
                    kernels=len(parts[0]),
                    toolchains=1,
                    rounds_us=tuple(map(tuple, race["timed"][key])),
                    calibrations_us=tuple(calibrations),
                    parts_us=tuple(parts),
                )
                found.append((path.name.partition(".")[0], plan))
    return found


def errors(plan: Timed) -> dict[str, float]:
    """Return by which share a plan as a whole takes more or less than its kernels in their places, for each way."""
    beside = plan.calibrations_us[: len(plan.parts_us)]
    found = {}
    for way, reduce in WAYS.items():
        kernels = sum(reduce([part[site] for part in plan.parts_us], beside) for site in plan.parts_us[0])
        found[way] = abs(reduce(plan.round_times_us, plan.calibrations_us) / kernels - 1)
    found[OWN] = abs(plan.usual_us(_USUAL_US) / sum(plan.in_place_us(_USUAL_US).values()) - 1)
    return found


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results as a page."""
    found = report["plans"]
    models = len({plan["model"] for plan in found})
    how = (
        f"{len(found)} plans of several kernels that raced, of {models} models. An error is by which share the plan as "
        "a whole differs from the sum of its kernels, which were timed in their places in the first rounds."
    )
    lines = head("Rounds of races at one speed of the machine", report["environment"], how, "one contender at a time")
    rows = []
    for way in (*WAYS, OWN):
        of_way = [plan["errors"][way] for plan in found]
        rows.append((way, f"{statistics.median(of_way):.1%}", f"{statistics.fmean(of_way):.1%}"))
    lines += lines_of(("rounds are normalised", "median error", "mean"), rows)
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, and return 2 for misuse."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.race_normalising", description=__doc__)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="folder with tuning databases")
    parser.add_argument("--results", type=Path, metavar="FILE.json", help="write everything there and a page beside it")
    noting(parser)
    options = parser.parse_args(arguments)
    found = [{"model": name, "errors": errors(plan)} for name, plan in plans(sorted(options.work.glob("*.sqlite")))]
    if not found:
        print(f"race_normalising: no plan of several kernels raced in {options.work}/*.sqlite", file=sys.stderr)
        return 2
    report = {"schema_version": 1, "environment": environment(), "plans": found}
    if options.results:
        written(options.results, report, markdown(report), options.note, afresh=True)
    print(markdown(report), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
