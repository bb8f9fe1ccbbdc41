"""Costs of a machine that may be elsewhere: what a store has, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from collage.measure.driver.source import MeasuringCostSource, Step
from collage.measure.wire.outcomes import Failed, Stage
from collage.store import Purpose
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

    def measure(
        self,
        candidates: Iterable[CandidateKernel],
        purpose: Purpose = "select",
        progress: Callable[[Step], None] | None = None,
        *,
        brief: bool = False,
    ) -> None:
        """Look up what was measured there; see the class."""
        for candidate in candidates:
            if self.outcome(candidate) is None:
                self.fail_for_now(self.record_key(candidate), Failed(stage=Stage.START, reason=NOT_MEASURED))
