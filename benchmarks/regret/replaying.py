"""Regret of the default search on one model, in replays over its database and resamplings of it."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.regret.known import read_known, write_known
from benchmarks.regret.searches import (
    SEARCHES,
    Searched,
    best_known,
    best_single,
    described,
    kept,
    known_pool,
    searched,
)
from benchmarks.replay.bench import Bench
from collage.store import Purpose, TuningStore
from collage_core.candidates.plan import Plan

RESAMPLINGS: Final = 5
WITHIN: Final = 0.02
WORST: Final = 0.05
LOST_AT_MOST: Final = 2
"""Models on which the default search may lose more than `WITHIN`."""
SHARE: Final = 1 / 3
_NAMED: Final = 5


def replayed(
    bench: Bench, store: TuningStore, known: Path, *, live: Collection[Purpose], draws: int = RESAMPLINGS
) -> dict[str, Any]:
    """Replay both searches of a model and return what they lose, as JSON.

    Args:
        bench: The model.
        store: Its measurements.
        known: File of its known candidates, which is updated.
        live: Purposes for which what the store lacks is measured and added; see `Replay`.
        draws: Number of resamplings.
    """
    seeds = [None, *range(1, draws + 1)]
    found = [
        {name: searched(bench, options, store, draw, live=live) for name, options in SEARCHES.items()} for draw in seeds
    ]
    pool, best = best_of(bench, store, known, [each for run in found for each in run.values()])
    single = best_single(found[0]["exhaustive"].plans, pool)
    runs = []
    plans = {best.key: described(best)}
    for draw, run in zip(seeds, found, strict=True):
        row: dict[str, Any] = {"draw": draw}
        for name, each in run.items():
            plan = kept(each.plans, pool)
            plans[plan.key] = described(plan)
            row[name] = {
                "seconds": round(each.seconds, 3),
                "measured": each.measured,
                "fresh": each.fresh,
                "unknown": each.unknown,
                "kept": plan.key,
                "regret": regret(plan, best),
            }
        row["share"] = row["default"]["seconds"] / row["exhaustive"]["seconds"]
        runs.append(row)
    return {
        "name": bench.path.stem,
        "operators": bench.workload.graph.needs_kernel.bit_count(),
        "candidates": len({pool.cache_key(each) for each in found[0]["exhaustive"].candidates}),
        "plans": plans,
        "best": best.key,
        "single": {"target": single.name, "us": round(single.predicted_us, 1)},
        "stake": 1 - best.predicted_us / single.predicted_us,
        "runs": runs,
        **summary(runs),
    }


def best_of(bench: Bench, store: TuningStore, known: Path, found: Sequence[Searched]) -> tuple[Any, Plan]:
    """Return all known candidates of a model at long-run costs, and the best plan of them.

    Args:
        bench: The model.
        store: Its measurements.
        known: File of what was known before; it is updated.
        found: What searches found now.
    """
    before = read_known(known, bench.workload.graph, bench.rules)
    pool = known_pool(bench, store, [*(each for run in found for each in run.candidates), *before])
    write_known(known, bench.workload.graph, tuple(pool))
    return pool, best_known(pool)


def regret(plan: Plan, best: Plan) -> float:
    """Return by which share of the best plan's latency a plan takes longer."""
    return plan.predicted_us / best.predicted_us - 1


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the regret of the default search over replays, median and worst, and its median share of the seconds."""
    losses = [run["default"]["regret"] for run in runs]
    share = statistics.median(run["share"] for run in runs)
    return {"regret": statistics.median(losses), "worst": max(losses), "share": share}


def verdict(models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what does not hold, a sentence each.

    Args:
        models: Results of `replayed`.
    """
    said = []
    lost = [model["name"] for model in models if model["regret"] > WITHIN]
    if len(lost) > LOST_AT_MOST:
        said.append(f"{len(lost)} of {len(models)} models lose more than {WITHIN:.0%}; {LOST_AT_MOST} may")
    far = [model["name"] for model in models if model["worst"] > WORST]
    if far:
        more = f" and {len(far) - _NAMED} more" if len(far) > _NAMED else ""
        said.append(f"{len(far)} lose more than {WORST:.0%} in some replay: {', '.join(far[:_NAMED])}{more}")
    share = statistics.median(model["share"] for model in models)
    if share > SHARE:
        said.append(f"the default search takes {share:.2f} of the exhaustive one's seconds, median; {SHARE:.2f} may be")
    return said
