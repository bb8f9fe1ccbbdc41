"""Build a function once in a worker and run it on several inputs: for its outputs, or for histograms of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeVar

import numpy as np

from collage.measure.wire.messages import AskHistograms, AskSeries
from collage.measure.wire.outcomes import Evaluated, Failed, Refused, Series, Stage
from collage.measure.wire.values import decode_value, encode_value
from collage.measure.worker.check_outputs import Bound
from collage.measure.worker.failing import Stopped, failing_as
from collage.measure.worker.trial import Trial
from collage.measure.worker.trials import Trials
from collage.values.histogram import count_elements

_Answer = TypeVar("_Answer")


def series_of(trials: Trials, ask: AskSeries) -> Series | Refused | Failed:
    """Return the outputs of each run.

    Args:
        trials: Tries candidates of the toolchain.
        ask: The request.
    """
    trial = trials.trial(SeriesTrial, ask)
    with trial:
        return _of_first(trial, lambda bound: trial.outputs(bound, ask))


def histograms_of(trials: Trials, ask: AskHistograms) -> Evaluated | Refused | Failed:
    """Return the counts of each output over all runs; only one run's outputs are in memory at a time.

    Args:
        trials: Tries candidates of the toolchain.
        ask: The request.
    """
    trial = trials.trial(SeriesTrial, ask)
    with trial:
        return _of_first(trial, lambda bound: trial.histograms(bound, ask))


class SeriesTrial(Trial):
    """A trial whose kernel runs on several inputs."""

    def outputs(self, bound: Bound, ask: AskSeries) -> Series:
        """Return the outputs of each run.

        Raises:
            Stopped: If one fails.
        """
        return Series(runs=tuple(self.evaluated(bound).outputs for _ in self._runs(bound, ask)))

    def histograms(self, bound: Bound, ask: AskHistograms) -> Evaluated:
        """Return the counts of each output over all runs.

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


def _of_first(trial: Trial, answer: Callable[[Bound], _Answer]) -> _Answer | Refused | Failed:
    """Return what the first variant that works gives."""
    for artifact in trial.variants(1):
        try:
            return answer(trial.bind(artifact))
        except Stopped as stopped:
            trial.discard(artifact, stopped.outcome)
    return trial.why_none()
