"""Profiles of candidates by their toolchains, kept in the tuning database."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from collage.measure.driver.capture import Capture
from collage.measure.driver.recorded import RecordedCosts
from collage.measure.driver.records import is_deadly
from collage.measure.driver.requests import Requests, function_of
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.profiling.saved_profiles import SavedProfile, document_name, profile_of, saved_parts
from collage.measure.wire.messages import AskProfile
from collage.measure.wire.outcomes import Failed, Profiled, Refused, Stage
from collage.store import MAX_ATTEMPTS, RecordKey, TuningStore
from collage_core.contract import Host, KernelProfile, Unsupported
from collage_core.fusion.spec import CandidateKernel


class ProfilingCosts(RecordedCosts):
    """Recorded costs, and profiles that are made where the database has none.

    Args:
        pool: Workers of the toolchains.
        capture: See `RecordedCosts`.
        database: Where outcomes are kept.
        host: This machine.
        settings: How to measure.
        warm: See `RecordedCosts`.
        plugins: See `RecordedCosts`.
        retry_failed: See `RecordedCosts`.
    """

    def __init__(
        self,
        *,
        pool: WorkerPool,
        capture: Callable[[], Capture],
        database: TuningStore,
        host: Host,
        settings: MeasureSettings,
        warm: frozenset[str] = frozenset(),
        plugins: Mapping[str, str] | None = None,
        retry_failed: bool = False,
    ) -> None:
        super().__init__(
            capture=capture,
            database=database,
            host=host,
            settings=settings,
            warm=warm,
            plugins=plugins,
            retry_failed=retry_failed,
        )
        self._pool = pool
        self._requests = Requests(capture, pool.store, settings)
        self._unprofiled: dict[RecordKey, Unsupported] = {}
        self._profiled_now: set[RecordKey] = set()

    def known_profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported | None:
        """Return the recorded profile of a candidate, or why its profiling failed; None if nobody tried.

        It is of the variant that the candidate's cost stands for. Its nodes have the names of the candidate's graph.
        """
        key = self.record_key(candidate)
        saved = self._database.get_document(SavedProfile, document_name(key))
        if saved is None or not saved.serves(self.variant(candidate), self.settings.deadline_s, key.plugin):
            return None
        if saved.failure and self._retry_failed and key not in self._profiled_now:
            return None
        return Unsupported(saved.failure) if saved.failure else profile_of(saved, candidate.sub_graph)

    def profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported:
        """Return where the time of a candidate's kernel goes, by its toolchain's own profiler.

        The profile is made once per database and variant. So is the attempt that failed with a version of the plugin:
        one that hangs, or kills its worker twice, costs later runs nothing. A refusal is asked for again by each run.

        Args:
            candidate: A candidate, measured or not; the variant that its cost stands for is profiled.

        Returns:
            The profile, by the names of the candidate's nodes in its graph. Or why there is none.
        """
        known = self.known_profile(candidate)
        if known is not None:
            return known
        key = self.record_key(candidate)
        if key not in self._unprofiled:
            began = time.monotonic()
            outcome = self._profiled(self._requests.profile(candidate, self.variant(candidate)))
            if isinstance(outcome, Refused) or (isinstance(outcome, Failed) and outcome.stage is Stage.START):
                self._unprofiled[key] = Unsupported(outcome.reason)
            else:
                self._save(candidate, outcome, time.monotonic() - began)
                made = self.known_profile(candidate)
                return Unsupported("its profile is not of its function") if made is None else made
        return self._unprofiled[key]

    def _profiled(self, ask: AskProfile) -> Profiled | Refused | Failed:
        for _ in range(MAX_ATTEMPTS):
            outcome = self._pool.worker(ask.target.toolchain).profile(ask)
            if not is_deadly(outcome):
                break
        return outcome

    def _save(self, candidate: CandidateKernel, outcome: Profiled | Failed, seconds: float) -> None:
        profile = outcome.profile if isinstance(outcome, Profiled) else None
        key = self.record_key(candidate)
        saved = SavedProfile(
            variant=outcome.variant if isinstance(outcome, Profiled) else self.variant(candidate) or "",
            seconds=round(seconds, 4),
            parts=() if profile is None else saved_parts(profile, function_of(candidate.sub_graph)),
            unattributed=() if profile is None else profile.unattributed,
            failure=outcome.reason if isinstance(outcome, Failed) else "",
            deadline_s=self.settings.deadline_s,
            plugin=key.plugin,
        )
        self._database.put_document(document_name(key), saved)
        self._profiled_now.add(key)
