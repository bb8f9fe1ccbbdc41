"""Fill the database of one model with real measurements."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.regret.replaying import best_of
from benchmarks.regret.searches import DEFAULT, EXHAUSTIVE, SEARCHES, best_single, kept, searched
from benchmarks.replay.bench import Bench
from benchmarks.replay.source import MEASURED
from collage.store import RecordKey, TuningStore

RECORDS: Final = 4
"""Measurements of each kernel of the plans that are compared, at least."""
_TURNS: Final = 10
"""Most turns in which these kernels are measured again: what is cheap by luck becomes dearer, and others the best."""


def filled(bench: Bench, store: TuningStore, known: Path) -> Mapping[str, Any]:
    """Run the exhaustive search, then the default one, then measure the plans that matter again.

    The best of many noisy costs is too low. So the kernels of the best known plan, of what both searches keep, and of
    the best single toolchain are measured again, in turns, until each has `RECORDS` measurements of its own time.

    Args:
        bench: The model.
        store: Its database, which may hold some of it already.
        known: File of its known candidates, which is updated.

    Returns:
        What it took, as JSON.
    """
    began = time.monotonic()
    source = bench.source(store)
    bench.explored(EXHAUSTIVE, source, bench.progress)
    exhaustive = time.monotonic() - began
    found = [searched(bench, options, store, None, live=MEASURED) for options in (EXHAUSTIVE, DEFAULT)]
    turns = 0
    while turns < _TURNS:
        pool, best = best_of(bench, store, known, found)
        plans = [best, best_single(found[0].plans, pool), *(kept(each.plans, pool) for each in found)]
        kernels = {pool.cache_key(kernel): kernel for plan in plans for kernel in plan.kernels}
        fresh = bench.source(store)
        few = [kernel for kernel in kernels.values() if _times(store, fresh.record_key(kernel)) < RECORDS]
        if not few:
            break
        fresh.measure(few, "confirm")
        turns += 1
    return {
        "searches": list(SEARCHES),
        "exhaustive_seconds": round(exhaustive, 1),
        "seconds": round(time.monotonic() - began, 1),
        "candidates": len({source.record_key(each) for each in found[0].candidates}),
        "measured": found[0].measured,
        "turns": turns,
    }


def _times(store: TuningStore, key: RecordKey) -> int:
    """Return how often a kernel was measured."""
    return sum(bool(record.samples_us) for record in store.records(key))
