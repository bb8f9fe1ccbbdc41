"""Have the independent judge time the plan that the default search keeps, and the best known one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnx

from benchmarks.judge.contender import CONTENDERS, Contender, built_in
from benchmarks.judge.inputs import beside, read
from benchmarks.judge.report import summarise
from benchmarks.judge.rounds import Outcome, Protocol, compete
from benchmarks.judge.statistics import paired_ratio
from benchmarks.regret.replaying import best_of
from benchmarks.regret.searches import CANDIDATES, SEARCHES, described, kept, searched
from benchmarks.replay.bench import Bench
from collage.store import TuningStore

WITHIN: Final = 1.02
HALF_WIDTH: Final = 0.03
"""An interval that reaches farther to one side decides nothing."""
UNDECIDED_AT_MOST: Final = 2
_SINGLES: Final = ("onnxruntime", "onnxruntime-nospin", "openvino")


def raced(bench: Bench, store: TuningStore, known: Path, *, rounds: int) -> dict[str, Any]:
    """Build both plans of a model, have them judged with the single toolchains, and return the results as JSON.

    Args:
        bench: The model.
        store: Its measurements.
        known: File of its known candidates.
        rounds: Rounds of the judge.
    """
    found = {name: searched(bench, options, store, None, live=CANDIDATES) for name, options in SEARCHES.items()}
    pool, best = best_of(bench, store, known, list(found.values()))
    ours = kept(found["default"].plans, pool)
    plans = {"default": ours} if ours.key == best.key else {"default": ours, "best": best}
    contenders = [built_in()[name] for name in _SINGLES]
    for name, plan in plans.items():
        package = bench.path.with_suffix(f".{name}.collage")
        bench.save(plan, package)
        options = {"model": str(package)}
        contenders.append(Contender(name=name, file=CONTENDERS / "collage_package.py", options=options))
    model = onnx.load(bench.path)
    outcomes = compete(
        bench.path,
        read(beside(bench.path)),
        [output.name for output in model.graph.output],
        contenders,
        Protocol(threads=bench.place.threads, rounds=rounds),
    )
    judged = summarise({"name": bench.path.stem}, outcomes)
    return {
        "name": bench.path.stem,
        "plans": {name: described(plan) for name, plan in plans.items()},
        "judged": judged["contenders"],
        "best_single": judged["best_single"],
        **_compared(outcomes),
    }


def _compared(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the ratio of the default plan to the best known one, and what it says."""
    ran = {outcome.contender.name: outcome for outcome in outcomes}
    failed = {name: ran[name].failed for name in ("default", "best") if name in ran and ran[name].failed}
    if failed:
        return {"ratio": None, "ci95": None, "verdict": f"failed: {failed}"}
    if "best" not in ran:
        return {"ratio": 1.0, "ci95": [1.0, 1.0], "verdict": "the same plan"}
    ratio = paired_ratio(ran["default"].rounds_us, ran["best"].rounds_us)
    interval = [ratio.low, ratio.high]
    return {"ratio": ratio.value, "ci95": interval, "verdict": judged(ratio.low, ratio.high)}


def judged(low: float, high: float) -> str:
    """Return what the interval of a ratio says of a plan.

    Examples:
        >>> judged(0.99, 1.01), judged(1.0, 1.05), judged(1.03, 1.05), judged(0.9, 1.01)
        ('within', 'undecided', 'lost', 'not measured')
    """
    if low > WITHIN:
        return "lost"
    if high - low > 2 * HALF_WIDTH:
        return "not measured"
    return "within" if high <= WITHIN else "undecided"
