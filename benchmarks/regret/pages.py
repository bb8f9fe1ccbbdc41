"""Format what replays and races found, as rows and as pages."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.judge.report import rounds_said
from benchmarks.judge.statistics import HALF_WIDTH
from benchmarks.page import head, lines_of
from benchmarks.regret.race import UNDECIDED_AT_MOST, WITHIN
from benchmarks.regret.replaying import LOST_AT_MOST, SHARE, WORST
from benchmarks.regret.replaying import WITHIN as LOSS
from benchmarks.regret.searches import SEARCHES

_ABOUT = {"onnxruntime": "ort", "onnxruntime(spin=true)": "ort-spin", "openvino": "ov"}
HEADINGS = (
    *("model", "candidates", "exhaustive s", "default s", "share"),
    *("best single ms", "best known ms", "its plan", "kept by default", "lost", "worst", "exact lost"),
)


def plan_text(plan: Mapping[str, Any]) -> str:
    """Format a plan: the target of each kernel with its operator, or their number and the last.

    Examples:
        >>> one, other = {"target": "openvino"}, {"target": "onnxruntime"}
        >>> plan_text({"kernels": [one | {"operators": "Conv Relu"}, other | {"operators": "ArgMax"}]})
        'ov 2 ..Relu, ort ArgMax'
    """
    return ", ".join(f"{_target(each['target'])} {_operators(each['operators'])}" for each in plan["kernels"])


def _target(name: str) -> str:
    return _ABOUT.get(name, name)


def _operators(joined: str) -> str:
    names = joined.split()
    return joined if len(names) == 1 else f"{len(names)} ..{names[-1]}"


def row(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Format one model's replays as text under `HEADINGS`; figures of searches are medians over replays."""
    runs = model["runs"]
    best, plans = model["best"], [run["default"]["kept"] for run in runs]
    seconds = {name: statistics.median(run[name]["seconds"] for run in runs) for name in ("exhaustive", "default")}
    same = plans.count(best)
    others = [plan for plan in plans if plan != best]
    shown = plan_text(model["plans"][statistics.mode(others)]) if others else "the best"
    if 0 < same < len(plans):
        shown += f" ({same} of {len(plans)} the best)"
    return (
        model["name"],
        str(model["candidates"]),
        f"{seconds['exhaustive']:.1f}",
        f"{seconds['default']:.1f}",
        f"{model['share']:.2f}",
        f"{model['single']['us'] / 1e3:.2f} {_target(model['single']['target'])}",
        f"{model['plans'][best]['us'] / 1e3:.2f} ({1 - model['stake']:.2f})",
        plan_text(model["plans"][best]),
        shown,
        f"{model['regret']:.1%}",
        f"{model['worst']:.1%}",
        f"{_exhaustive(model):.1%}",
    )


def _exhaustive(model: Mapping[str, Any]) -> float:
    """Return what the exhaustive search loses, median over replays."""
    return float(statistics.median(run["exhaustive"]["regret"] for run in model["runs"]))


def conclusion(report: Mapping[str, Any]) -> str:
    """Say in a paragraph what all models came to."""
    models = report["models"]
    near = sum(model["regret"] <= LOSS for model in models)
    far = [model["name"] for model in models if model["worst"] > WORST]
    exhaustive = sum(_exhaustive(model) <= LOSS for model in models)
    share = statistics.median(model["share"] for model in models)
    said = (
        f"Within {LOSS:.0%} of the best known plan on {near} of {len(models)} models; more than {WORST:.0%} lost in "
        f"some replay on {len(far)}. Median share of the exhaustive search's measuring time: {share:.2f}. That search "
        f"itself, which measures each candidate once or twice, is within {LOSS:.0%} on {exhaustive}."
    )
    if unknown := sum(run[name]["unknown"] for model in models for run in model["runs"] for name in SEARCHES):
        said += f" Candidates that searches asked for {unknown} times are not in the databases and failed."
    return said + (" This does not hold: " + "; ".join(report["failed"]) + "." if report["failed"] else " This holds.")


def markdown(report: Mapping[str, Any]) -> str:
    """Format the results of `replay` as a Markdown page."""
    runs = len(report["models"][0]["runs"])
    how = (
        "The default search (preset `default`) and the exhaustive one (`extensive`, `exact`), replayed over one "
        f"database of real measurements for each generated model and over {runs - 1} resamplings of its samples. "
        "Seconds are those that the measurements took, with the preset `extensive` for both. Plans are compared at "
        "long-run costs: the median over all measurements of a kernel, with dispatch and copies. What a search keeps "
        "is what `optimize` would if its race said of each plan what the long run says. `best known` is the cheapest "
        "plan of all candidates that any search ever asked for; in brackets its ratio to the best single toolchain. "
        "`lost` is what the kept plan takes longer than the best known one: median over replays, then the worst; "
        f"`exact lost` is the same of the exhaustive search. At most {LOST_AT_MOST} models may lose more than "
        f"{LOSS:.0%}, none more than {WORST:.0%} in any replay, and the median share of the seconds may be {SHARE:.2f}."
    )
    lines = head("Regret of the default search", report, how, "one candidate at a time")
    lines += [conclusion(report), ""]
    return "\n".join([*lines, *lines_of(HEADINGS, map(row, report["models"]))]) + "\n"


RACED = ("model", "best single", "ms", "default ms", "best known ms", "default/best known", "95 %", "verdict")


def raced_row(model: Mapping[str, Any]) -> tuple[str, ...]:
    """Format one model's race as text under `RACED`."""
    times = {each["name"]: each["latency_ms"]["p50"] for each in model["judged"] if "latency_ms" in each}
    single = model["best_single"]
    shown = [f"{times[name]:.2f}" if name in times else "" for name in (single, "default", "best")]
    low, high = model["ci95"] or (float("nan"), float("nan"))
    ratio = "" if model["ratio"] is None else f"{model['ratio']:.3f}"
    return model["name"], str(single), *shown, ratio, f"{low:.3f} to {high:.3f}", model["verdict"]


def lost(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what does not hold of races, a sentence each."""
    by_verdict = {
        verdict: [model["name"] for model in group]
        for verdict, group in itertools.groupby(sorted(models, key=lambda m: m["verdict"]), lambda m: m["verdict"])
    }
    fine = {"within", "the same plan"}
    open_ones = [name for verdict in ("undecided", "not measured") for name in by_verdict.get(verdict, [])]
    said = [
        f"{verdict}: {', '.join(names)}"
        for verdict, names in by_verdict.items()
        if verdict not in fine | {"undecided", "not measured"}
    ]
    if len(open_ones) > UNDECIDED_AT_MOST:
        said.append(f"undecided on {len(open_ones)}, {UNDECIDED_AT_MOST} may be: {', '.join(open_ones)}")
    return said


def raced_markdown(report: Mapping[str, Any]) -> str:
    """Format the results of `race` as a Markdown page."""
    how = (
        "Packages that `collage optimize` makes, by default and from an empty database, and of the best known plan, "
        "with the single toolchains, by `benchmarks/judge`, which imports nothing of Collage: "
        f"{rounds_said(report['protocol'])}, each contender in a process of its own. Within means that the interval of "
        f"the ratio ends at most at {WITHIN}; an interval that is more than {2 * HALF_WIDTH} wide is no measurement."
    )
    lines = head("The default search's plans against the best known ones", report, how, "one contender at a time")
    return "\n".join([*lines, *lines_of(RACED, map(raced_row, report["models"]))]) + "\n"
