"""Page with the results of `benchmarks/gpu.py`: every race, geometric means, and who did not run and why."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.gpu_plan import COLLAGE, EAGER, MAX_AUTOTUNE, STEPS, TOOLCHAINS, Step, ablation, toolchain_of
from benchmarks.judge.statistics import Interval, geometric_mean, median_interval
from benchmarks.page import head, lines_of

SLOWER = 1.03
"""Limit that the interval of a plan's ratio to the best single toolchain must stay below."""
_ROUNDING = 1e-4
_TIMES_EAGER = 10

HEADINGS = (
    *("model", "batch", "precision", "collage ms", "error"),
    *("max-autotune ms", "speed-up", "95 %", "eager ms", "speed-up", "95 %"),
    *("best single", "ms", "speed-up", "95 %"),
)


def ran(race: Mapping[str, Any], name: str | None) -> Mapping[str, Any] | None:
    """Return a contender's row in a race; None if it has no latencies."""
    return next((row for row in race["contenders"] if row["name"] == name and "latency_ms" in row), None)


def round_ratios(race: Mapping[str, Any], base: str | None, of: str = COLLAGE) -> list[float]:
    """Compute by round how many times as long as the plan another contender takes; empty if either did not run.

    Args:
        race: Race to evaluate.
        base: The other contender.
        of: Name of the plan: the one of all toolchains, or a row of the ablation.
    """
    rounds = race["rounds_us"]
    if base not in rounds or of not in rounds:
        return []
    return [other / own for other, own in zip(rounds[base], rounds[of], strict=True)]


def faults(race: Mapping[str, Any]) -> list[str]:
    """Return the faults of a race's plan as sentences; empty if it satisfies Collage's guarantees."""
    plan = ran(race, COLLAGE)
    if plan is None:
        return [] if COLLAGE not in {row["name"] for row in race["contenders"]} else ["no plan ran"]
    found = []
    eager = ran(race, EAGER)
    if not plan["comparable"]:
        found.append("its outputs differ in shape or are not finite")
    elif eager is not None and eager["comparable"]:  # what is wrong in a precision, only another can tell
        error, usual = plan["max_error"], eager["max_error"]
        if error > max(_ROUNDING, _TIMES_EAGER * usual):
            found.append(f"its error is {error:.1e}, PyTorch's in the same precision {usual:.1e}")
    ratio = plan.get("ratio_vs_best_single")
    if ratio and ratio["ci95"][1] > SLOWER:
        found.append(f"it may be slower than {race['best_single']}: up to {ratio['ci95'][1]:.2f} of its time")
    return [*found, *_slowed(race)]


def _slowed(race: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ablation steps that may be slower than the previous one, where an added toolchain hurt the plan."""
    for before, step in itertools.pairwise(steps(race)):
        ratios = round_ratios(race, step.contender, before.contender)
        if ratios and (ratio := median_interval(ratios)).high > SLOWER:
            added = " and ".join(step.added)
            yield f"with {added} it may be slower than without: up to {ratio.high:.2f} of {before.contender}'s time"


def steps(race: Mapping[str, Any]) -> list[Step]:
    """Return the rows of a race's ablation that ran; empty unless at least two did."""
    found = [step for step in ablation(race.get("toolchains", "")) if step.contender in race["rounds_us"]]
    return found if len(found) > 1 else []


def rows(races: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield the races as text under `HEADINGS`."""
    for race in races:
        plan = ran(race, COLLAGE)
        shown = ("did not run", "") if plan is None else (_milliseconds(plan), _error(plan))
        yield (
            *(race["name"], str(race["batch"]), race["precision"], *shown),
            *_against(race, MAX_AUTOTUNE),
            *_against(race, EAGER),
            *(race["best_single"] or "none", *_against(race, race["best_single"])),
        )


def means(races: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield geometric mean speed-ups per precision as text: precision, against, races, mean, interval."""
    for precision in dict.fromkeys(race["precision"] for race in races):
        for name, base in ((MAX_AUTOTUNE, MAX_AUTOTUNE), (EAGER, EAGER), ("best single toolchain", None)):
            of = [race for race in races if race["precision"] == precision]
            ratios = [ratios for race in of if (ratios := round_ratios(race, base or race["best_single"]))]
            if ratios:
                mean = geometric_mean(ratios)
                yield precision, name, f"{len(ratios)} of {len(of)}", f"{mean.value:.2f}", _ends(mean)


def _columns(races: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Return the toolchains that the ablations of some races add, in the order of their steps."""
    found = {step.added for race in races for step in steps(race)}

    def place(added: tuple[str, ...]) -> tuple[int, int, tuple[str, ...]]:
        name = toolchain_of(added[0])
        where = [name in step for step in STEPS]
        return where.index(True) if name in TOOLCHAINS else len(STEPS), -len(added), added

    return sorted(found, key=place)


def ablation_lines(races: Sequence[Mapping[str, Any]]) -> list[str]:
    """Format the ablations as a table: the latency of each step and its speed-up over the first.

    There is one row for each race with an ablation, and one for the geometric mean over the races of each precision
    that have the step. The column is empty for a toolchain that a machine refuses or whose plan did not run.
    """
    columns = _columns(races)
    named = [" and ".join(added) for added in columns]
    lines = []
    for race in races:
        ran_steps = {step.added: step for step in steps(race)}
        if not ran_steps:
            continue
        first = next(iter(ran_steps.values())).contender
        cells = [_step(race, ran_steps.get(added), first) for added in columns]
        lines.append((race["name"], str(race["batch"]), race["precision"], *cells))
    for precision in dict.fromkeys(race["precision"] for race in races):
        of = [race for race in races if race["precision"] == precision and steps(race)]
        if len(of) > 1:
            lines.append(("geometric mean", "", precision, *(_mean_step(of, added) for added in columns)))
    if not lines:
        return []
    headings = [*("model", "batch", "precision"), *named[:1], *(f"+ {name}" for name in named[1:])]
    return lines_of(headings, lines)


def _step(race: Mapping[str, Any], step: Step | None, first: str) -> str:
    row = None if step is None else ran(race, step.contender)
    if step is None or row is None:
        return ""
    if step.contender == first:
        return f"{_milliseconds(row)} ms"
    ratio = median_interval(round_ratios(race, first, step.contender))
    return f"{_milliseconds(row)} ms, {ratio.value:.2f} ({_ends(ratio)})"


def _mean_step(races: Sequence[Mapping[str, Any]], added: tuple[str, ...]) -> str:
    ratios = []
    for race in races:
        first, *others = steps(race)
        ratios += [round_ratios(race, first.contender, step.contender) for step in others if step.added == added]
    if not ratios:
        return ""
    mean = geometric_mean(ratios)
    return f"{mean.value:.2f} ({_ends(mean)}), {len(ratios)} of {len(races)} races"


def markdown(races: Sequence[Mapping[str, Any]]) -> str:
    """Format all races as a Markdown page."""
    last = max(races, key=lambda race: str(race["date"]))
    protocol = last["protocol"]
    how = (
        f"One race for each line, judged by `benchmarks/judge`: {protocol['rounds']} rounds, in which each contender, "
        f"in a process of its own, runs for {protocol['seconds']} s after {protocol['warmup_s']} s of warm-up. All "
        "compute in the same precision, with CUDA graphs where they can, inputs and outputs in the device's memory; "
        "a run ends when the device is done. A speed-up is the other's time divided by Collage's: the median over "
        "rounds, its interval a bootstrap over rounds. Errors are relative to the output's scale, against PyTorch in "
        "float32 on the CPU."
    )
    devices = "; ".join(sorted({str(race["device"]) for race in races}))
    lines = head("Plans against PyTorch and single toolchains", last, how, devices)
    lines += lines_of(HEADINGS, rows(races))
    found = list(means(races))
    if found:
        lines += ["", "Geometric means of the speed-ups:", ""]
        lines += lines_of(("precision", "against", "races", "mean", "95 %"), found)
    if table := ablation_lines(races):
        about = (
            "One toolchain more in each column, as in the ablation of Collage's paper: how long the plan takes, and "
            "how many times as fast as the plan of the first column it is."
        )
        lines += ["", about, "", *table]
    for title, items in (
        ("What the plans do not hold:", _faulty(races)),
        ("How each runs, by its own word:", _notes(races)),
        ("What did not run:", _failed(races)),
    ):
        listed = [f"- {item}" for item in items]
        lines += ["", title, "", *listed] if listed else []
    return "\n".join(lines) + "\n"


def speed_up(race: Mapping[str, Any], base: str | None) -> Interval | None:
    """Compute the plan's speed-up over another contender."""
    ratios = round_ratios(race, base)
    return median_interval(ratios) if ratios else None


def _against(race: Mapping[str, Any], base: str | None) -> tuple[str, str, str]:
    other, ratio = ran(race, base), speed_up(race, base)
    if other is None:
        return "", "", ""
    return (
        (_milliseconds(other), "", "") if ratio is None else (_milliseconds(other), f"{ratio.value:.2f}", _ends(ratio))
    )


def _milliseconds(row: Mapping[str, Any]) -> str:
    return f"{row['latency_ms']['p50']:.3f}"


def _error(row: Mapping[str, Any]) -> str:
    return f"{row['max_error']:.1e}" if row["comparable"] else "not comparable"


def _ends(interval: Interval) -> str:
    return f"{interval.low:.2f} - {interval.high:.2f}"


def _where(race: Mapping[str, Any]) -> str:
    return f"{race['name']}, batch {race['batch']}, {race['precision']}"


def _faulty(races: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for race in races:
        yield from (f"{_where(race)}: {fault}" for fault in faults(race))


def _notes(races: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    said: dict[tuple[str, str], int] = {}
    for race in races:
        for row in race["contenders"]:
            if row.get("note"):
                key = row["name"], row["note"]
                said[key] = said.get(key, 0) + 1
    for (name, note), count in said.items():
        yield f"{name}: {note} ({count} of {len(races)} races)"


def _failed(races: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    said: dict[tuple[str, str], list[str]] = {}
    for race in races:
        for row in race["contenders"]:
            if "failed" in row:
                said.setdefault((row["name"], row["failed"]), []).append(_where(race))
        for name, reason in race.get("unusable", {}).items():
            said.setdefault((name, reason), []).append(_where(race))
    for (name, reason), where in said.items():
        yield f"{name}: {reason} ({'; '.join(where)})"
