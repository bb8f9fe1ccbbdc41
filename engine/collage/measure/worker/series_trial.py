"""Build a function once in a worker and run it on several inputs: for its outputs, or for histograms of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from collage.measure.wire.messages import AskHistograms, AskSeries
from collage.measure.wire.outcomes import Evaluated, Failed, Refused, Series, Stage
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.trial import Trial
from collage.measure.worker.trials import Trials
from collage.values.histogram import count_elements


def answered(trials: Trials, ask: AskSeries) -> Series | Evaluated | Refused | Failed:
    """Return the outputs of each run of the first variant that works, or the counts of each output over all runs.

    Args:
        trials: Tries candidates of the toolchain.
        ask: The request.
    """
    with trials.trial(SeriesTrial, ask) as trial:
        for artifact in trial.variants(1):
            try:
                bound = trial.bind(artifact)
                return trial.histograms(bound, ask) if isinstance(ask, AskHistograms) else trial.outputs(bound, ask)
            except Stopped as stopped:
                trial.discard(artifact, stopped.outcome)
        return trial.why_none()


class SeriesTrial(Trial):
    """A trial whose kernel runs on several inputs."""

    def outputs(self, bound: Bound, ask: AskSeries) -> Series:
        """Return the outputs of each run.

        Raises:
            Stopped: If one fails.
        """
        return Series(runs=tuple(self.evaluated(bound).outputs for _ in self._runs(bound, ask)))

    def histograms(self, bound: Bound, ask: AskHistograms) -> Evaluated:
        """Return the counts of each output over all runs; only one run's outputs are in memory at a time.

        Raises:
            Stopped: If one fails.
        """
        counts = [np.zeros(1 + ask.bins, np.int64) for _ in bound.outputs]
        for _ in self._runs(bound, ask):
            with failing_as(Stage.RUN):
                for total, buffer, largest in zip(counts, bound.outputs, ask.largest, strict=True):
                    total += count_elements(np.asarray(buffer.value), largest, ask.bins)
        return Evaluated(outputs=tuple(encode_value(total, self._store) for total in counts))

    def _runs(self, bound: Bound, ask: AskSeries) -> Iterator[None]:
        """Call a kernel on each of the inputs, the first of which it is bound to, and yield after each call."""
        self.run(bound)
        yield
        for before, values in itertools.pairwise([ask.inputs, *ask.further]):
            for buffer, old, new in zip(bound.inputs, before, values, strict=True):
                if new != old:
                    buffer.put(decode_value(new, self._store))
            self.run(bound)
            yield
