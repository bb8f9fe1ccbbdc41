"""Costs of candidates on one machine as the tuning database knows them."""

from __future__ import annotations

import functools
import hashlib
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from collage.measure.driver.capture import Capture
from collage.measure.driver.records import is_of_this_judge, objection, to_outcome, usable_records
from collage.measure.driver.settings import MeasureSettings
from collage.measure.statistics import percentile
from collage.measure.wire.outcomes import Failed, Measured, Outcome, Refused, Stage
from collage.store import (
    MachineSpeed,
    RecordKey,
    TuningRecord,
    TuningStore,
    block_times_us,
    of_any_plugin,
    timing_beside,
)
from collage_core.candidates.refusals import Rejection, Remembered
from collage_core.contract import INVALID, UNMEASURED, Cost, Host, Unmeasured
from collage_core.contract.device import HOST
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.spec import CandidateKernel
from collage_core.fusion.sub_graph import SubGraph

CACHED = "+cached"
"""Suffix of the launch mode in a record key: the kernel's weights were in the device's cache."""

_NOT_RUNNING: Final = ("build_s", "waited_s")
"""Of the seconds that measuring a candidate took, those in which it did not run."""


class RecordedCosts:
    """Costs of candidates out of a tuning database.

    Structurally equal candidates of a target are one, whichever of them was measured. So are those of two targets that
    are measured as one (`CandidateKernel.measured_as`), held to what that one is held to.

    Args:
        capture: Gives the values that keys of some candidates depend on; called when they are first needed, and then
            often, so it should remember them.
        database: Where outcomes are kept.
        host: This machine.
        settings: How candidates are measured, so which records count.
        warm: Devices whose caches hold the model's weights from one run to the next. Kernels are timed there as plans
            find them, with theirs in the cache; that is another measurement than of the same kernel in a larger model.
        plugins: Version of each toolchain's plugin; one that is not named is unknown.
        retry_failed: Whether failures that other runs recorded do not count.
    """

    def __init__(
        self,
        *,
        capture: Callable[[], Capture],
        database: TuningStore,
        host: Host,
        settings: MeasureSettings,
        warm: frozenset[str] = frozenset(),
        plugins: Mapping[str, str] | None = None,
        retry_failed: bool = False,
    ) -> None:
        self._capture = capture
        self._database = database
        self._host = host
        self._warm = warm
        self._plugins = plugins or {}
        self._retry_failed = retry_failed
        self._tried: set[RecordKey] = set()
        self._transient: dict[RecordKey, Failed] = {}
        self._keys: dict[SubGraph, str] = {}
        self._records: dict[RecordKey, list[TuningRecord]] = {}
        self._read: dict[RecordKey, tuple[TuningRecord, ...]] = {}  # by keys without the plugin's version
        self._read_ahead: set[tuple[str, str]] = set()  # hash and machine of what was read
        self._speed: MachineSpeed | None = None
        self.settings = settings

    def key(self, sub_graph: SubGraph) -> str:
        """Return what makes a sub-graph one with another: structure, and values where work depends on them."""
        graph = sub_graph.graph
        known = self._keys.get(sub_graph)
        if known is None:
            known = sub_graph.structural_hash
            unplanned = [v for v in sub_graph.input_values if not graph.spec(v).has_known_shape]
            if unplanned or sub_graph.nodes & graph.data_dependent_mask:
                function = kernel_function(sub_graph, "keyed")
                digest = hashlib.sha256(repr(self._capture().inputs_of(function)).encode())
                known = f"{known}+{digest.hexdigest()[:16]}"
            self._keys[sub_graph] = known
        return known

    def record_key(self, candidate: CandidateKernel) -> RecordKey:
        """Return under what a candidate is recorded."""
        target = candidate.measured_as
        return RecordKey(
            structural_hash=self.key(candidate.sub_graph),
            target=target.name,
            fingerprint=target.fingerprint,
            host=self._host.fingerprint_for(target.device),
            threads=self.settings.build.threads,
            launch=target.launch + (CACHED if target.device in self._warm else ""),
            timing=timing_beside(self.bytes_beside(candidate)),
            plugin=self._plugins.get(target.toolchain, ""),
        )

    def bytes_beside(self, candidate: CandidateKernel) -> int:
        """Return how much memory the model's other kernels touch between two runs of one; 0 of one on a device."""
        return candidate.sub_graph.bytes_beside if candidate.measured_as.device == HOST else 0

    def cost(self, candidate: CandidateKernel, *, confirmed: bool = True) -> Cost | Unmeasured:
        """Return the median over the blocks of a candidate's samples, at the machine's usual speed.

        Of each block it is the median sample, or another percentile if the settings say so.

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
        return statistics.median(self._medians_us(chosen))

    def medians_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        """Return the medians whose median is the cost, one of each block; none if there is no finite cost."""
        return tuple(self._medians_us(self._deciding(candidate, confirmed=confirmed)))

    def last_medians_us(self, candidate: CandidateKernel) -> tuple[float, ...]:
        """Return the medians of the last measurement's blocks, at the machine's usual speed; none if it failed."""
        records = self.usable(candidate)
        return tuple(self._medians_us(records[-1:])) if records and records[-1].samples_us else ()

    def _medians_us(self, records: Sequence[TuningRecord]) -> list[float]:
        """Return the median of each block of the fresh samples if there are any, otherwise of the last record's."""
        fresh = [record for record in records if record.purpose == "confirm" and record.samples_us]
        deciding = fresh or records[-1:]
        usual_us = self.usual_calibration_us if any(record.blocks for record in deciding) else None
        of_block = functools.partial(percentile, percent=self.settings.percentile)
        return [
            time_us
            for record in deciding
            for time_us in block_times_us(record.samples_us, record.blocks, usual_us, of_block)
        ]

    @property
    def usual_calibration_us(self) -> float | None:
        """What the calibration kernel usually takes on this machine, in microseconds; None if it never ran."""
        if self._speed is None:
            self._speed = self._database.get_document(MachineSpeed, self._speed_name)
        return None if self._speed is None else self._speed.calibration_us

    def _learn_speed(self, outcome: Outcome) -> None:
        """Take the machine's speed beside the first measurement for usual, if the database knows of none."""
        if isinstance(outcome, Measured) and outcome.blocks and self.usual_calibration_us is None:
            self._speed = self._database.keep_first(self._speed_name, MachineSpeed.of(outcome.blocks))

    @property
    def _speed_name(self) -> str:
        return MachineSpeed.name(self._host.fingerprint, self.settings.build.threads)

    def _deciding(self, candidate: CandidateKernel, *, confirmed: bool) -> list[TuningRecord]:
        """Return the records a cost is computed from, in the order they were taken."""
        records = self.usable(candidate)
        selected = [record for record in records if record.purpose == "select"]
        return records if confirmed or not selected else selected

    def ran_s(self, candidate: CandidateKernel) -> float:
        """Return the seconds that a candidate ran to be checked and timed, when it was selected; 0 if nobody says."""
        records = [each for each in self._deciding(candidate, confirmed=False) if each.outcome == "measured"]
        took = records[-1].extra if records else {}
        return max(0.0, float(took.get("seconds", 0.0)) - sum(float(took.get(each, 0.0)) for each in _NOT_RUNNING))

    def is_confirmed(self, candidate: CandidateKernel) -> bool:
        """Return whether there are present fresh samples of a candidate, or it failed then; see `is_outdated`."""
        return any(record.purpose == "confirm" for record in self._present(candidate))

    def is_outdated(self, candidate: CandidateKernel) -> bool:
        """Return whether all that is known of a candidate is of other versions of its plugin, or of the judge."""
        return bool(self.usable(candidate)) and not self._present(candidate)

    def _present(self, candidate: CandidateKernel) -> list[TuningRecord]:
        plugin = self.record_key(candidate).plugin
        return [each for each in self.usable(candidate) if each.key.plugin == plugin and is_of_this_judge(each)]

    def outcome(self, candidate: CandidateKernel) -> Outcome | None:
        """Return what came of measuring a candidate last; None if nobody tried."""
        transient = self._transient.get(self.record_key(candidate))
        if transient is not None:
            return transient
        records = self.usable(candidate)
        if not records:
            return None
        return to_outcome(records[-1], self.settings.limits(candidate.measured_as))

    @property
    def transient(self) -> tuple[Failed, ...]:
        """Failures that the next run tries again."""
        return tuple(self._transient.values())

    def rejection(self, candidate: CandidateKernel) -> Rejection | None:
        """Return why a candidate that was tried cannot be used; None if it can, or nobody tried."""
        outcome = self.outcome(candidate)
        if not isinstance(outcome, Failed | Refused):
            return None
        stage = outcome.stage if isinstance(outcome, Failed) else Stage.LOWER
        return Rejection(stage=stage.value, reason=outcome.reason, remembered=self._remembered(candidate))

    def _remembered(self, candidate: CandidateKernel) -> Remembered | None:
        """Return since when the last outcome is known, and by which plugin; None if this run found it out."""
        key = self.record_key(candidate)
        if key in self._tried or key in self._transient:
            return None
        last = self.usable(candidate)[-1]
        return Remembered(since=last.created, plugin=last.key.plugin)

    def variant(self, candidate: CandidateKernel) -> str | None:
        """Return the name of the variant a candidate's cost stands for.

        None if it was not measured, or by another version of the plugin, whose variants may be others.
        """
        plugin = self.record_key(candidate).plugin
        measured = [
            record for record in self.usable(candidate) if record.outcome == "measured" and record.key.plugin == plugin
        ]
        return measured[-1].variant if measured else None

    def usable(self, candidate: CandidateKernel) -> list[TuningRecord]:
        """Return the records that say something under the present settings, in the order they were taken."""
        key = self.record_key(candidate)
        if key not in self._records:
            known = self._read.pop(of_any_plugin(key), ())
            if (key.structural_hash, key.host) not in self._read_ahead:
                known = self._database.records(key, any_plugin=True)
            retry = self._retry_failed and key not in self._tried
            limits = self.settings.limits(candidate.measured_as)
            self._records[key] = usable_records(known, key.plugin, limits, retry_failed=retry)
        return self._records[key]

    def read_ahead(self, candidates: Iterable[CandidateKernel], others: Collection[str] = ()) -> None:
        """Read what the database has of many kernels at once: of a server, each question costs a round trip.

        Args:
            candidates: Candidates that will be asked for.
            others: Hashes of other kernels that may be.
        """
        keys = [key for candidate in candidates if (key := self.record_key(candidate)) not in self._records]
        wanted = {(key.structural_hash, key.host) for key in keys} - self._read_ahead
        if wanted:
            hosts = {host for _, host in wanted}
            wanted |= {(each, host) for each in others for host in hosts} - self._read_ahead
            self._read |= self._database.records_with({each for each, _ in wanted}, hosts)
            self._read_ahead |= wanted

    def has_failed_for_now(self, key: RecordKey) -> bool:
        """Return whether a candidate failed in a way that says nothing to later runs."""
        return key in self._transient

    def fail_for_now(self, key: RecordKey, outcome: Failed) -> None:
        """Take a failure that counts in this run only."""
        self._transient[key] = outcome

    def read_anew(self, key: RecordKey) -> None:
        """Have a candidate's records read again: there are new ones."""
        self._records.pop(key, None)
        self._read_ahead.discard((key.structural_hash, key.host))
