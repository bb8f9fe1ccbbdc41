"""Costs by measuring: what the tuning database lacks is built, checked and timed in the toolchain's worker."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import statistics
import time
from collections.abc import Callable, Iterable

from collage.errors import DatabaseError
from collage.measure.driver import memory
from collage.measure.driver.capture import Capture
from collage.measure.driver.records import (
    Limits,
    is_deadly,
    is_short_of_memory,
    objection,
    superseded,
    to_outcome,
    to_record,
)
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskBuild, AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Built, Failed, Outcome, Refused, Stage, Tolerance
from collage.measure.wire.wire_values import WireFunction, WireValue
from collage.store import MAX_ATTEMPTS, BlobSpace, Purpose, RecordKey, StoredBlobs, TuningRecord, TuningStore
from collage_core.candidates.refusals import Rejection
from collage_core.contract import (
    INVALID,
    UNMEASURED,
    Cost,
    Host,
    KernelFunction,
    Protocol,
    Target,
    Unmeasured,
    ValueKind,
)
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.spec import CandidateKernel
from collage_core.fusion.sub_graph import SubGraph

CACHED = "+cached"
"""In a key, after how a kernel is launched: its weights were in the device's cache."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasureSettings:
    """How candidates are measured.

    Attributes:
        build: How they are built.
        device_variants: How many variants are tried of one on a device, where that is not what `build` says: libraries
            for devices offer many algorithms and guess among them, and each takes microseconds.
        protocol: How they are timed.
        tolerance: How exact they must be.
        inexact_tolerance: How exact those of targets must be that do not compute in the model's own dtypes.
        deadline_s: When the worker of one is killed.
        memory_bytes: About how much memory the worker of one may hold; what outgrew less is tried again.
    """

    build: BuildSettings
    device_variants: int | None = None
    protocol: Protocol = dataclasses.field(default_factory=Protocol)
    tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    inexact_tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    deadline_s: float = 120.0
    memory_bytes: int = dataclasses.field(default_factory=memory.limit_bytes)

    def build_for(self, target: Target) -> BuildSettings:
        """How candidates of a target are built."""
        if target.device == "cpu" or self.device_variants is None:
            return self.build
        return dataclasses.replace(self.build, max_variants=self.device_variants)

    def limits(self, target: Target) -> Limits:
        """What kernels of a target are held to."""
        tolerance = self.tolerance if target.exact else self.inexact_tolerance
        return Limits(tolerance, self.deadline_s, self.memory_bytes, self.build.deterministic)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """News for a progress display: one candidate is settled.

    Attributes:
        done: How many are, this one included.
        total: How many there are to settle.
        candidate: This one.
        outcome: What came of it.
        seconds: How long it took.
    """

    done: int
    total: int
    candidate: CandidateKernel
    outcome: Outcome
    seconds: float


@dataclasses.dataclass(slots=True)
class Counts:
    """What a source did so far.

    Attributes:
        measured: Candidates it measured, whatever the outcome, each as often as records were added for it: one that was
            selected and confirmed counts twice.
        cache_hits: Distinct candidates whose outcome was in the database.
        seconds: Time it spent measuring.
    """

    measured: int = 0
    cache_hits: int = 0
    seconds: float = 0.0


class MeasuringCostSource:
    """Costs of candidates on one machine, from the tuning database and from measurements that go into it.

    Structurally equal candidates of a target are one, whichever of them was measured. So are those of two targets that
    are measured as one (`CandidateKernel.measured_as`), held to what that one is held to.

    Args:
        pool: Workers of the toolchains.
        capture: Gives the values to run candidates on; called when they are first needed, and then often, so it
            should remember them.
        database: Where outcomes are kept.
        host: This machine.
        settings: How to measure.
        warm: Devices whose caches hold the model's weights from one run to the next. Kernels are timed there as plans
            find them, with theirs in the cache; that is another measurement than of the same kernel in a larger model.
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
        warm: frozenset[str] = frozenset(),
        now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC),
    ) -> None:
        self._pool = pool
        self._capture = capture
        self._database = database
        self._host = host
        self.settings = settings
        self._warm = warm
        self._now = now
        self._encoder = FunctionEncoder(pool.store)
        self._transient: dict[RecordKey, Failed] = {}
        self._seen: set[RecordKey] = set()
        self._keys: dict[SubGraph, str] = {}
        self._known: dict[RecordKey, list[TuningRecord]] = {}
        self.counts = Counts()

    # What is known

    def key(self, sub_graph: SubGraph) -> str:
        """What makes a sub-graph the same as another to measure: structure, and values where work depends on them."""
        graph = sub_graph.graph
        known = self._keys.get(sub_graph)
        if known is None:
            known = sub_graph.structural_hash
            unplanned = [v for v in sub_graph.input_values if graph.spec(v).kind is not ValueKind.PLANNED]
            if unplanned or sub_graph.nodes & graph.data_dependent_mask:
                function = kernel_function(sub_graph, "keyed")
                digest = hashlib.sha256(repr(self._capture().inputs_of(function)).encode())
                known = f"{known}+{digest.hexdigest()[:16]}"
            self._keys[sub_graph] = known
        return known

    def record_key(self, candidate: CandidateKernel) -> RecordKey:
        """Under what a candidate is recorded."""
        target = candidate.measured_as
        return RecordKey(
            structural_hash=self.key(candidate.sub_graph),
            target=target.name,
            fingerprint=target.fingerprint,
            host=self._host.fingerprint_for(target.device),
            threads=self.settings.build.threads,
            launch=target.launch + (CACHED if target.device in self._warm else ""),
        )

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """Median of the samples of a candidate.

        `INVALID` if it was refused or failed, `UNMEASURED` if nobody tried.

        Args:
            candidate: The candidate.
            confirmed: Whether to go by fresh samples where there are some; otherwise by those it was selected by,
                so that choices made before it was confirmed can be made again.
        """
        key = self.record_key(candidate)
        if key in self._transient:
            return INVALID
        chosen = self._deciding(candidate, confirmed=confirmed)
        if not chosen:
            return UNMEASURED
        if objection(chosen[-1], self.settings.limits(candidate.measured_as)):
            return INVALID
        return statistics.median(_samples(chosen))

    def samples_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        """The samples whose median is the cost; none if there is no finite one."""
        return tuple(_samples(self._deciding(candidate, confirmed=confirmed)))

    def _deciding(self, candidate: CandidateKernel, *, confirmed: bool) -> list[TuningRecord]:
        """The records a cost is computed from, in the order they were taken."""
        records = self._usable(candidate)
        selected = [record for record in records if record.purpose == "select"]
        return records if confirmed or not selected else selected

    def is_confirmed(self, candidate: CandidateKernel) -> bool:
        """Whether there are fresh samples of a candidate, or it is known to be unusable."""
        return any(record.purpose == "confirm" for record in self._usable(candidate))

    def outcome(self, candidate: CandidateKernel) -> Outcome | None:
        """What came of measuring a candidate last; None if nobody tried."""
        transient = self._transient.get(self.record_key(candidate))
        if transient is not None:
            return transient
        records = self._usable(candidate)
        if not records:
            return None
        return to_outcome(records[-1], self.settings.limits(candidate.measured_as))

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Why a candidate that was tried cannot be used; None if it can, or nobody tried."""
        outcome = self.outcome(candidate)
        if isinstance(outcome, Failed):
            return Rejection(stage=outcome.stage.value, reason=outcome.reason)
        return Rejection(stage=Stage.LOWER.value, reason=outcome.reason) if isinstance(outcome, Refused) else None

    # Measuring

    def measure(
        self,
        candidates: Iterable[CandidateKernel],
        purpose: Purpose = "select",
        progress: Callable[[Step], None] | None = None,
    ) -> None:
        """Measures what the database lacks; each outcome is durable before the next candidate begins.

        Args:
            candidates: What to measure, in this order; equal ones once.
            purpose: `"select"` measures what was never tried, `"confirm"` adds fresh samples to each.
            progress: Told of each candidate that was measured.
        """
        waiting: dict[RecordKey, CandidateKernel] = {}
        for candidate in candidates:
            key = self.record_key(candidate)
            if key in waiting or key in self._transient:
                continue
            if purpose == "select" and self._usable(candidate):
                self.counts.cache_hits += key not in self._seen
                self._seen.add(key)
                continue
            waiting[key] = candidate
        for number, (key, candidate) in enumerate(waiting.items(), start=1):
            began = time.monotonic()
            outcome = self._measured(key, candidate, purpose)
            seconds = time.monotonic() - began
            self._seen.add(key)
            self.counts.measured += 1
            self.counts.seconds += seconds
            if progress is not None:
                progress(Step(done=number, total=len(waiting), candidate=candidate, outcome=outcome, seconds=seconds))

    def build(
        self, sub_graph: SubGraph, target: Target, variant: str | None = None, *, check: bool = True
    ) -> Built | Refused | Failed:
        """Builds one call site, with its own weights, and checks it on its own captured values.

        Args:
            sub_graph: What.
            target: For whom.
            variant: Name of the variant to build; None for the first that is right.
            check: Whether to check it; otherwise it is loaded only, and nothing is captured.
        """
        function, inputs, expected = self._request(sub_graph) if check else (self._function(sub_graph), (), ())
        ask = AskBuild(
            target=target,
            function=function,
            variant=variant,
            inputs=inputs,
            expected=expected,
            build=self.settings.build_for(target),
            tolerance=self.settings.limits(target).tolerance,
            deadline_s=self.settings.deadline_s,
        )
        for _ in range(MAX_ATTEMPTS):
            outcome = self._pool.worker(target.toolchain).build(ask)
            if not is_deadly(outcome):
                break
        return outcome

    def variant(self, candidate: CandidateKernel) -> str | None:
        """Name of the variant a candidate's cost stands for; None if it was not measured."""
        measured = [record for record in self._usable(candidate) if record.outcome == "measured"]
        return measured[-1].variant if measured else None

    def _measured(self, key: RecordKey, candidate: CandidateKernel, purpose: Purpose) -> Outcome:
        ask = self._ask(candidate, purpose)  # the reference may have to run first; that is none of the candidate's
        try:
            began = time.monotonic()
            outcome = self._attempted(key, ask)
            seconds = time.monotonic() - began
            if isinstance(outcome, Failed) and outcome.stage is Stage.START:
                self._transient[key] = outcome  # no worker got as far as the candidate: that says nothing about it
                self._database.clear_attempts(key)
                return outcome
            limits = self.settings.limits(candidate.measured_as)
            self._database.append(to_record(outcome, key, purpose, self._now(), limits, seconds))
            if isinstance(outcome, Failed) and is_short_of_memory(outcome.reason):
                self._transient[key] = outcome  # for this run; `_usable` says what it is to others
        except BaseException:
            # an interrupt or error that this process lives to see is none of the candidate's: only an attempt that
            # nobody could end says that it kills
            with contextlib.suppress(DatabaseError):
                self._database.clear_attempts(key)
            raise
        self._known.pop(key, None)
        return outcome

    def _attempted(self, key: RecordKey, ask: AskMeasure) -> Outcome:
        """What kills its worker is begun `MAX_ATTEMPTS` times, attempts of runs that were killed included."""
        while True:
            attempt = self._database.begin_attempt(key)
            if attempt > MAX_ATTEMPTS:
                reason = f"measuring it was begun {attempt - 1} times and never ended: it kills what measures it"
                return Failed(stage=Stage.MEASURE, reason=reason)
            outcome = self._pool.worker(ask.target.toolchain).measure(ask)
            if not is_deadly(outcome):
                return outcome
            if attempt == MAX_ATTEMPTS and isinstance(outcome, Failed):
                return dataclasses.replace(outcome, reason=f"{outcome.reason} (attempt {attempt})")

    def _ask(self, candidate: CandidateKernel, purpose: Purpose) -> AskMeasure:
        function, inputs, expected = self._request(candidate.sub_graph)
        target = candidate.measured_as
        return AskMeasure(
            target=target,
            function=function,
            inputs=inputs,
            expected=expected,
            build=self.settings.build_for(target),
            protocol=self.settings.protocol,
            tolerance=self.settings.limits(target).tolerance,
            deadline_s=self.settings.deadline_s,
            variant=self.variant(candidate) if purpose == "confirm" else None,
            cold=target.device not in self._warm,
        )

    def _request(self, sub_graph: SubGraph) -> tuple[WireFunction, tuple[WireValue, ...], tuple[WireValue | None, ...]]:
        function = _named_function(sub_graph)
        expected = self._capture().expected_of(function, sub_graph.graph, sub_graph.nodes)
        return self._encoder.encode(function), self._capture().inputs_of(function), expected

    def _function(self, sub_graph: SubGraph) -> WireFunction:
        return self._encoder.encode(_named_function(sub_graph))

    def _usable(self, candidate: CandidateKernel) -> list[TuningRecord]:
        """Records that say something under the present settings."""
        key = self.record_key(candidate)
        if key not in self._known:
            limits = self.settings.limits(candidate.measured_as)
            records = [record for record in self._database.records(key) if record.purpose in ("select", "confirm")]
            short = [record for record in records if record.outcome == "failed" and is_short_of_memory(record.reason)]
            tried_again = len(short) >= MAX_ATTEMPTS
            self._known[key] = [
                record for record in records if not superseded(record, limits) and (tried_again or record not in short)
            ]
        return self._known[key]


def database_cache(database: TuningStore) -> Callable[[Target], StoredBlobs]:
    """Blob caches for a `WorkerPool`, kept in a tuning database by toolchain and fingerprint."""
    return lambda target: StoredBlobs(database, BlobSpace(toolchain=target.toolchain, fingerprint=target.fingerprint))


def _samples(records: list[TuningRecord]) -> list[float]:
    """The fresh samples, if there are some; otherwise the last ones."""
    fresh = [record for record in records if record.purpose == "confirm" and record.samples_us]
    return [sample for record in fresh or records[-1:] for sample in record.samples_us]


def _named_function(sub_graph: SubGraph) -> KernelFunction:
    return kernel_function(sub_graph, f"k_{sub_graph.structural_hash[:12]}")
