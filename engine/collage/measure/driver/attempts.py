"""Attempts at measuring a candidate: what kills its worker is begun `MAX_ATTEMPTS` times, and counts as failed then."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator

from collage.measure.driver.records import is_deadly
from collage.measure.wire.outcomes import Failed, Outcome, Stage
from collage.store import MAX_ATTEMPTS, RecordKey, TuningStore
from collage.store.errors import DatabaseError


def attempted(database: TuningStore | None, key: RecordKey, measure: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of measuring a candidate, attempts of runs that were killed included.

    Args:
        database: Keeps attempts; None where what it may kill is not this process.
        key: The candidate's.
        measure: Measures it in a worker, which it may kill.
    """
    for number in itertools.count(1):
        attempt = number if database is None else database.begin_attempt(key)
        if attempt > MAX_ATTEMPTS:
            reason = f"measuring it was begun {attempt - 1} times and never ended: it kills what measures it"
            return Failed(stage=Stage.MEASURE, reason=reason)
        outcome = measure()
        if not is_deadly(outcome):
            return outcome
        if attempt == MAX_ATTEMPTS and isinstance(outcome, Failed):
            return dataclasses.replace(outcome, reason=f"{outcome.reason} (attempt {attempt})")
    raise AssertionError("attempts end")


@contextlib.contextmanager
def withdrawn_on_error(database: TuningStore, running: Collection[RecordKey]) -> Iterator[None]:
    """Remove this process's attempts at candidates where an interrupt or an error leaves the context.

    What this process lives to see is none of the candidate's: only an attempt that nobody could end says that it kills.

    Args:
        database: Keeps attempts.
        running: The candidates that are being measured when the context is left.
    """
    try:
        yield
    except BaseException:
        with contextlib.suppress(DatabaseError):
            for key in running:
                database.clear_attempts(key)
        raise
