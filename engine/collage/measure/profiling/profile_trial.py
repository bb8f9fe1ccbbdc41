"""Have a toolchain profile a kernel of its own, in its worker."""

from __future__ import annotations

from collage.measure.wire.messages import AskProfile, Progress
from collage.measure.wire.outcomes import Failed, Profiled, Refused, Stage
from collage.measure.worker.binding import bound_to
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.trial import Trial
from collage.measure.worker.trials import Trials
from collage_core.contract import Artifact, BoundCall, Kernel, Unsupported
from collage_core.registry import Toolchain


def profiled(trials: Trials, toolchain: Toolchain, ask: AskProfile) -> Profiled | Refused | Failed:
    """Build a variant and have it profiled.

    Args:
        trials: Tries candidates of the toolchain.
        toolchain: The toolchain.
        ask: The request.
    """
    if not toolchain.implements("collage_profile"):  # or it would be built in vain
        return Refused(reason="the toolchain does not profile its kernels")
    trial = trials.trial(ProfileTrial, ask)
    with trial:
        for artifact in trial.variants(ask.build.max_variants, ask.variant):
            try:
                return trial.profile(toolchain, artifact, ask.runs)
            except Stopped as stopped:
                trial.discard(artifact, stopped.outcome)
        return trial.why_none()


class ProfileTrial(Trial):
    """A trial whose kernel is profiled."""

    def profile(self, toolchain: Toolchain, artifact: Artifact, runs: int) -> Profiled:
        """Have a variant profiled.

        Raises:
            Stopped: If it is refused, or fails.
        """
        self._loading.check(artifact)
        self._report(Progress(stage=Stage.PROFILE, variant=artifact.variant))
        held: list[Bound] = []

        def bind(kernel: Kernel) -> BoundCall:
            device = self._loading.device
            held.append(bound_to(kernel, artifact, self._function, self._values, device, self._lost))
            return held[-1].call

        with failing_as(Stage.PROFILE, self._lost):
            run = self._loading.context(artifact)
            found = toolchain.profile(self._target, self._function, artifact, run, bind, runs)
        if isinstance(found, Unsupported):
            raise Stopped(Refused(reason=found.reason))
        return Profiled(profile=found, variant=artifact.variant)
