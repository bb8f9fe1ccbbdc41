"""Costs of a machine that may be elsewhere: what a store has, and nothing else."""

from __future__ import annotations

from collage.measure.driver.source import MeasuringCostSource
from collage.measure.wire.outcomes import Failed, Outcome, Stage
from collage.store import Purpose, RecordKey
from collage_core.contract import KernelProfile, Unsupported
from collage_core.fusion import CandidateKernel

NOT_MEASURED = "it was not measured on that machine"


class RecordedSource(MeasuringCostSource):
    """See `MeasuringCostSource`; nothing is built, and nothing is written.

    What was never measured there cannot be used, and what was measured there once is as good as confirmed.
    """

    def profile(self, candidate: CandidateKernel) -> KernelProfile | Unsupported:
        """Return the profile that was made there."""
        known = self.known_profile(candidate)
        return Unsupported("it was not profiled on that machine") if known is None else known

    def _measured(self, key: RecordKey, candidate: CandidateKernel, purpose: Purpose, *, brief: bool) -> Outcome:
        known = self.outcome(candidate)
        if known is not None:
            return known
        missing = Failed(stage=Stage.START, reason=NOT_MEASURED)
        self.fail_for_now(key, missing)
        return missing
