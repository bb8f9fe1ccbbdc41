"""Cost sources over a database that another run filled: one replays a search, one knows the long run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from benchmarks.replay.records import again, document_seconds, long_run_us, resampled, seconds_of, shortened
from collage.measure.driver.recorded import RecordedCosts
from collage.measure.driver.records import to_outcome
from collage.measure.driver.settings import BRIEF_BLOCKS
from collage.measure.driver.source import MeasuringCostSource, Step
from collage.measure.wire.messages import AskProfile
from collage.measure.wire.outcomes import Failed, Outcome, Profiled, Refused, Stage
from collage.store import Purpose, RecordKey, StoredDocument, TuningRecord, TuningStore
from collage.store.memory import MemoryStore
from collage_core.candidates.costs import CacheKey
from collage_core.candidates.plan import Plan
from collage_core.contract import INVALID, Cost, Unmeasured
from collage_core.fusion import CandidateKernel

MEASURED: Final[frozenset[Purpose]] = frozenset({"select", "confirm"})
"""Purposes of the measurements that a replay serves one by one."""


class Overlay(MemoryStore):
    """A store whose measurements of candidates are a replay's own; everything else is the filled database's.

    So what a search finds out once, whatever it is, is found out once for all replays.

    Args:
        filled: The database.

    Attributes:
        others_s: Seconds that the other records took which were asked for by their purpose, by their content, and
            documents, such as profiles, by kind and name.
    """

    def __init__(self, filled: TuningStore) -> None:
        super().__init__()
        self._filled = filled
        self.others_s: dict[str, float] = {}

    def append(self, record: TuningRecord) -> bool:
        """See `TuningStore`."""
        return super().append(record) if record.purpose in MEASURED else self._filled.append(record)

    def records(
        self, key: RecordKey, purpose: Purpose | None = None, *, any_plugin: bool = False
    ) -> tuple[TuningRecord, ...]:
        """See `TuningStore`."""
        own = super().records(key, purpose, any_plugin=any_plugin)
        if purpose in MEASURED:
            return own
        found = self._filled.records(key, purpose, any_plugin=any_plugin)
        others = tuple(each for each in found if each.purpose not in MEASURED)
        if purpose is not None:
            self.others_s |= {each.content_id: seconds_of(each) for each in others}
        return own + others

    def records_with(
        self, hashes: Collection[str], hosts: Collection[str]
    ) -> dict[RecordKey, tuple[TuningRecord, ...]]:
        """See `TuningStore`."""
        found = {key: MemoryStore.records(self, key, any_plugin=True) for key in super().records_with(hashes, hosts)}
        for key, records in self._filled.records_with(hashes, hosts).items():
            others = tuple(each for each in records if each.purpose not in MEASURED)
            if others:
                found[key] = found.get(key, ()) + others
        return found

    def put_all_stored(self, documents: Iterable[StoredDocument], *, replace: bool = True) -> int:
        """See `TuningStore`."""
        return self._filled.put_all_stored(documents, replace=replace)

    def get_stored(self, kind: str, name: str) -> StoredDocument | None:
        """See `TuningStore`."""
        found = self._filled.get_stored(kind, name)
        if found is not None and (took_s := document_seconds(found)):
            self.others_s[f"{kind} {name}"] = took_s
        return found

    def document_keys(
        self, kind: str | None = None, prefix: str = "", *, before: float | None = None
    ) -> tuple[tuple[str, str], ...]:
        """See `TuningStore`."""
        return self._filled.document_keys(kind, prefix, before=before)


class Replay(MeasuringCostSource):
    """Serves measurements from a database that another run filled.

    Args:
        filled: Real measurements; missing ones are measured and added.
        draw: Seed for resampling; None to serve the recorded samples.
        timing: How the samples were taken, if that was before the present way.
        live: Purposes for which missing measurements are made. For others, another measurement of a known candidate is
            made up out of its samples, and a candidate that was never measured fails.
        **options: As of `MeasuringCostSource`, without its database.

    Attributes:
        when: Value of `seconds` at the first measurement of each candidate, by target and key.
        fresh: Number of measurements made now.
        unknown: Number of candidates that failed because they were never measured.
    """

    def __init__(
        self,
        filled: TuningStore,
        draw: int | None,
        *,
        timing: str | None = None,
        live: Collection[Purpose] = MEASURED,
        **options: Any,
    ) -> None:
        self._own = Overlay(filled)
        super().__init__(database=self._own, **options)
        self._filled = filled
        self._timing = timing
        self._live = MeasuringCostSource(database=filled, **options)
        self._purposes = frozenset(live)
        self._draw = draw
        self._served_s = 0.0
        self.when: dict[CacheKey, float] = {}
        self.fresh = 0
        self.unknown = 0

    def record_key(self, candidate: CandidateKernel) -> RecordKey:
        """See `RecordedCosts`."""
        return _timed_as(super().record_key(candidate), self._timing)

    @property
    def seconds(self) -> float:
        """Total time that the served measurements originally took."""
        return self._served_s + sum(self._own.others_s.values())

    def reached(self, plan: Plan) -> float:
        """Return the seconds after which all kernels of a plan were measured; infinite if one never was."""
        keys = ((each.measured_as.name, self.key(each.sub_graph)) for each in plan.kernels)
        return max((self.when.get(key, math.inf) for key in keys), default=0.0)

    def measure(
        self,
        candidates: Iterable[CandidateKernel],
        purpose: Purpose = "select",
        progress: Callable[[Step], None] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        """Answer by what was measured, or measure; see `MeasuringCostSource`."""
        for key, candidate in self._lacking(candidates, purpose):
            outcome = self._served(key, candidate, purpose, brief=brief)
            self._seen.add(key)
            self.counts.measured += 1
            if progress is not None:
                progress(Step(candidate=candidate, outcome=outcome, seconds=0.0))

    def _served(self, key: RecordKey, candidate: CandidateKernel, purpose: Purpose, *, brief: bool) -> Outcome:
        record = self._next(key, candidate, purpose)
        if record is None:
            outcome = self._live.outcome(candidate)
            if not isinstance(outcome, Failed):
                self.unknown += 1
                outcome = Failed(stage=Stage.START, reason="the database has no measurement of it")
            self.fail_for_now(key, outcome)
            return outcome
        record = resampled(record, self._draw)
        if brief:
            record = shortened(record, BRIEF_BLOCKS, self.settings.protocol.warmup_s)
        self._served_s += seconds_of(record)
        self.when.setdefault((candidate.measured_as.name, self.key(candidate.sub_graph)), self.seconds)
        self._own.append(record)
        self.read_anew(key)
        return to_outcome(record, self.settings.limits(candidate.measured_as))

    def _profiled(self, ask: AskProfile) -> Profiled | Refused | Failed:
        if not self._purposes:
            self.unknown += 1
            return Refused(reason="the database has no profile of it")
        self.fresh += 1
        return super()._profiled(ask)

    def _next(self, key: RecordKey, candidate: CandidateKernel, purpose: Purpose) -> TuningRecord | None:
        """Return the next measurement for a purpose; None if there is none, and none can be made."""
        served = len(self._own.records(key, purpose))
        known = self._filled.records(key, purpose)
        if len(known) <= served and purpose in self._purposes:
            self._live.measure([candidate], purpose)
            self.fresh += 1
            known = self._filled.records(key, purpose)
        if len(known) > served:
            return known[served]
        others = [record for record in self._filled.records(key) if record.purpose in MEASURED]
        return again(others, purpose, served) if others else None


class LongRunCosts(RecordedCosts):
    """Costs by everything a database knows of a candidate, not by what one search was served.

    Args:
        timing: How the samples were taken, if that was before the present way.
        **options: As of `RecordedCosts`.
    """

    def __init__(self, timing: str | None = None, **options: Any) -> None:
        super().__init__(**options)
        self._timing = timing

    def record_key(self, candidate: CandidateKernel) -> RecordKey:
        """See `RecordedCosts`."""
        return _timed_as(super().record_key(candidate), self._timing)

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """Return the long-run cost; see `KnownCosts`. `confirmed` makes no difference: all samples count."""
        known = super().cost(candidate)
        if isinstance(known, Unmeasured) or known == INVALID:
            return known
        return long_run_us(self.usable(candidate), self.usual_calibration_us)


def _timed_as(key: RecordKey, timing: str | None) -> RecordKey:
    return key if timing is None else dataclasses.replace(key, timing=timing)
