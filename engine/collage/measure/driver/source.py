"""Costs by measuring: candidates missing in the tuning database are built, checked and timed in their worker."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import statistics
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from collage.measure.driver.attempts import attempted, withdrawn_on_error
from collage.measure.driver.capture import Capture
from collage.measure.driver.measurer import Measurer, side_by_side
from collage.measure.driver.records import is_deadly, is_short_of_disk, is_short_of_memory, to_record
from collage.measure.driver.repeats import note_repeat
from collage.measure.driver.settings import MeasureSettings
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.profiling.profiling_costs import ProfilingCosts
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Built, Failed, Measured, Outcome, Refused, Stage
from collage.store import MAX_ATTEMPTS, ModelKernels, Purpose, RecordKey, TuningStore
from collage_core.contract import Host
from collage_core.fusion import CandidateKernel


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Progress event: one candidate is settled.

    Attributes:
        candidate: The candidate.
        outcome: Its outcome.
        seconds: How long it took.
    """

    candidate: CandidateKernel
    outcome: Outcome
    seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A request, and what it is for."""

    key: RecordKey
    candidate: CandidateKernel
    ask: AskMeasure


@dataclasses.dataclass(slots=True)
class Counts:
    """Counters of a cost source.

    Attributes:
        measured: Candidates it measured, whatever the outcome, each as often as records were added for it: one that
            was selected and confirmed counts twice.
        cache_hits: Distinct candidates whose outcome was in the database.
        seconds: Time spent measuring.
    """

    measured: int = 0
    cache_hits: int = 0
    seconds: float = 0.0


class MeasuringCostSource(ProfilingCosts):
    """Costs of candidates on one machine, from the tuning database and from measurements that go into it.

    Args:
        pool: Workers of the toolchains.
        measurer: Measures candidates; `pool` if None.
        capture: Gives the values to run candidates on; called when they are first needed, and then often, so it
            should remember them.
        database: Where outcomes are kept.
        host: This machine.
        settings: How to measure.
        warm: See `RecordedCosts`.
        kernels: Notes what kernels the model asks for, and knows which it asked for before; None for neither.
        plugins: See `RecordedCosts`.
        retry_failed: See `RecordedCosts`.
        now: The time of a record.
    """

    def __init__(
        self,
        *,
        pool: WorkerPool,
        capture: Callable[[], Capture],
        database: TuningStore,
        host: Host,
        settings: MeasureSettings,
        measurer: Measurer | None = None,
        warm: frozenset[str] = frozenset(),
        kernels: ModelKernels | None = None,
        plugins: Mapping[str, str] | None = None,
        retry_failed: bool = False,
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        super().__init__(
            pool=pool,
            capture=capture,
            database=database,
            host=host,
            settings=settings,
            warm=warm,
            plugins=plugins,
            retry_failed=retry_failed,
        )
        self._now = now
        self._measurer: Measurer = measurer or pool
        self._kernels = kernels
        self._seen: set[RecordKey] = set()
        self._built: dict[tuple[CandidateKernel, str | None], Built] = {}
        self.counts = Counts()

    def measure(
        self,
        candidates: Iterable[CandidateKernel],
        purpose: Purpose = "select",
        progress: Callable[[Step], None] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        """Measure what the database lacks, as many at once as the measurer is wide; each outcome is durable at once.

        Args:
            candidates: What to measure, in this order; equal ones once. The next is taken when there is room for it.
            purpose: `"select"` measures what was never tried, `"confirm"` adds fresh samples to each.
            progress: Told of each candidate that was measured.
            brief: Whether to take the protocol's first blocks only (see `MeasureSettings.brief`), and to judge
                candidates as plans use them no sooner than they are confirmed.
        """
        if isinstance(candidates, Collection):
            self.expect(candidates)
        running: set[RecordKey] = set()
        mark = time.monotonic()
        requested = self._requested(candidates, purpose, brief, running)
        measuring = side_by_side(requested, self._attempt, self._measurer.width)
        with contextlib.closing(measuring), withdrawn_on_error(self._database, running):
            for asked, (outcome, seconds) in measuring:
                self._settle(asked, purpose, outcome, seconds)
                running.discard(asked.key)
                self._seen.add(asked.key)
                self.counts.measured += 1
                mark, before = time.monotonic(), mark
                self.counts.seconds += seconds if self._measurer.width == 1 else mark - before
                if progress is not None:
                    progress(Step(candidate=asked.candidate, outcome=outcome, seconds=seconds))

    def expect(self, candidates: Collection[CandidateKernel]) -> None:
        """Read what the database has of candidates, all at once, and keep that the model asks for them.

        Args:
            candidates: Those that will be measured, or asked for what they cost.
        """
        if self._kernels is not None:
            self._kernels.note({self.record_key(candidate).structural_hash for candidate in candidates})
        self.read_ahead(candidates, () if self._kernels is None else self._kernels.before)

    def condemn(self, candidate: CandidateKernel, failure: Failed) -> None:
        """Record that a candidate fails, though it passed when it was selected: it counts as failed from now on.

        Args:
            candidate: The candidate.
            failure: How it fails; in a plan, in which company.
        """
        key = self.record_key(candidate)
        limits = self.settings.limits(candidate.measured_as)
        # whatever a search goes by, samples it was selected by or fresh ones, this comes last
        self._database.append(to_record(failure, key, "select", self._now(), limits))
        self._tried.add(key)
        self.read_anew(key)

    def build(
        self, kernel: CandidateKernel, variant: str | None = None, *, check: bool = True
    ) -> Built | Refused | Failed:
        """Build one call site, with its own weights, and check it on its own captured values.

        Several plans may have it: what is built and right is not built again.

        Args:
            kernel: What, and for whom.
            variant: Name of the variant to build; None for the first that is right.
            check: Whether to check it; otherwise it is loaded only, and nothing is captured.
        """
        if (kernel, variant) in self._built:
            return self._built[kernel, variant]
        ask = self._requests.build(kernel.sub_graph, kernel.target, variant, check=check)
        for _ in range(MAX_ATTEMPTS):
            outcome = self._pool.worker(kernel.target.toolchain).build(ask)
            if not is_deadly(outcome):
                break
        if check and isinstance(outcome, Built):
            self._built[kernel, variant] = outcome
        return outcome

    def _lacking(
        self, candidates: Iterable[CandidateKernel], purpose: Purpose
    ) -> Iterator[tuple[RecordKey, CandidateKernel]]:
        """Yield what the database lacks, equal candidates once; count what it has."""
        done: set[RecordKey] = set()
        for candidate in candidates:
            key = self.record_key(candidate)
            if key in done or self.has_failed_for_now(key):
                continue
            done.add(key)
            if purpose == "select" and self.usable(candidate):
                self.counts.cache_hits += key not in self._seen
                self._seen.add(key)
                continue
            yield key, candidate

    def _requested(
        self, candidates: Iterable[CandidateKernel], purpose: Purpose, brief: bool, running: set[RecordKey]
    ) -> Iterator[_Asked]:
        """Yield requests for what the database lacks, each noted as running."""
        for key, candidate in self._lacking(candidates, purpose):
            if self._retry_failed and key not in self._tried:
                self._database.clear_attempts(key, of_the_dead=True)
            running.add(key)
            variant = self.variant(candidate) if purpose == "confirm" else None
            cold = candidate.measured_as.device not in self._warm
            # the reference may have to run first; that is none of the candidate's
            beside = self.bytes_beside(candidate)
            ask = self._requests.measure(candidate, variant, cold=cold, bytes_beside=beside, brief=brief)
            yield _Asked(key=key, candidate=candidate, ask=ask)

    def _attempt(self, asked: _Asked) -> tuple[Outcome, float]:
        """Measure, perhaps on another thread than others; return the outcome, and the seconds that it took."""
        began = time.monotonic()
        database = self._database if self._measurer.is_here else None
        outcome = attempted(database, asked.key, lambda: self._measurer.measure(asked.ask))
        return outcome, time.monotonic() - began

    def _settle(self, asked: _Asked, purpose: Purpose, outcome: Outcome, seconds: float) -> None:
        """Keep an outcome, durably."""
        key, candidate = asked.key, asked.candidate
        if isinstance(outcome, Failed) and (outcome.stage is Stage.START or is_short_of_disk(outcome.reason)):
            self.fail_for_now(key, outcome)  # no worker got as far as the candidate: that says nothing about it
            self._database.clear_attempts(key)
            return
        self._learn_speed(outcome)
        limits = self.settings.limits(candidate.measured_as)
        self._database.append(to_record(outcome, key, purpose, self._now(), limits, seconds))
        if isinstance(outcome, Failed) and is_short_of_memory(outcome.reason):
            self.fail_for_now(key, outcome)  # `usable` says what it is to others
        elif isinstance(outcome, Failed) and purpose == "confirm":
            self.condemn(candidate, outcome)  # it is not to be selected by its brief samples either
        self._tried.add(key)
        self.read_anew(key)
        if purpose == "confirm" and isinstance(outcome, Measured):
            self._learn_repeat(candidate)

    def _learn_repeat(self, candidate: CandidateKernel) -> None:
        """Take the last two measurements of a candidate for how far measurements repeat on this machine."""
        measured = [record for record in self.usable(candidate) if record.outcome == "measured" and record.samples_us]
        if len(measured) > 1:
            costs_us = [statistics.median(self._medians_us([record])) for record in measured[-2:]]
            note_repeat(self._database, self.record_key(candidate), *costs_us)
