"""By how much plans drop in a metric of the user's, each found out once per database."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from collage.control.metric import UserMetric
from collage.errors import MetricError
from collage.measure.wire.value_files import read_values, write_values
from collage.precision.document_names import document_name, plan_facts
from collage.precision.plans.plan_runs import PlanRuns
from collage.setup.environment import Environment
from collage.setup.inputs import Labelled, LabelledSamples, digest_values
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MetricValue:
    """What a plan reaches in a metric.

    Attributes:
        value: In the metric's unit; more is better.
    """

    KIND: ClassVar[str] = "metric"
    VERSION: ClassVar[int] = 1

    value: float


class Drops:
    """Runs plans on labelled samples, and gives their outputs to the metric.

    Args:
        environment: The model and the toolchains.
        runs: Builds and runs plans.
        metric: Says how good outputs are.
        samples: The labelled samples.
        plain: A plan in the model's own types, to which others are compared.

    Attributes:
        metric: As given.
        samples: As given.
        plain: As given.
    """

    def __init__(
        self,
        environment: Environment[Workload],
        runs: PlanRuns,
        metric: UserMetric,
        samples: LabelledSamples,
        plain: Plan,
    ) -> None:
        self._environment = environment
        self._runs = runs
        self.plain = plain
        self.metric = metric
        self.samples = samples
        self._keys: dict[bool, str] = {}
        self._values: dict[tuple[str, bool], float] = {}

    def drop(self, plan: Plan, *, held_out: bool) -> float:
        """Return by how much less a plan reaches than the model in its own types; negative if it reaches more.

        Args:
            plan: The plan.
            held_out: Whether on the samples that decide nothing.

        Returns:
            The drop; infinite if what the plan reaches is no finite number.

        Raises:
            PrecisionError: If a plan does not run.
            MetricError: If the metric cannot be computed.
        """
        drop = self.of_model(held_out=held_out) - self.value(plan, held_out=held_out)
        return drop if math.isfinite(drop) else math.inf

    def of_model(self, *, held_out: bool) -> float:
        """Return what the model reaches in its own types.

        Raises:
            PrecisionError: If it does not run.
            MetricError: If the metric cannot be computed, or is no finite number.
        """
        found = self.value(self.plain, held_out=held_out)
        if not math.isfinite(found):
            raise MetricError(self.metric.name, f"it is {found} for the model in its own types")
        return found

    def value(self, plan: Plan, *, held_out: bool) -> float:
        """Return what a plan reaches; remembered for this run, and in the database if the metric is a file's."""
        if (plan.key, held_out) not in self._values:
            self._values[plan.key, held_out] = self._found(plan, held_out)
        return self._values[plan.key, held_out]

    def _found(self, plan: Plan, held_out: bool) -> float:
        samples = self.samples.held_out if held_out else self.samples.deciding
        if not self.metric.version:
            return self._computed(plan, samples, held_out)
        if held_out not in self._keys:
            self._keys[held_out] = _key(samples)
        database = self._environment.toolchains.database
        what = ["metric", self.metric.name, self.metric.version, self._keys[held_out]]
        name = document_name(self._environment, plan.targets, [*what, *plan_facts(self._environment, plan)])
        known = database.get_document(MetricValue, name)
        if known is None:
            known = MetricValue(value=self._computed(plan, samples, held_out))
            if math.isfinite(known.value):
                database.put_document(name, known)
        return known.value

    def _computed(self, plan: Plan, samples: Sequence[Labelled], held_out: bool) -> float:
        made = self._runs.outputs(plan, self._documents(samples, held_out))
        return self.metric.of([read_values(path) for path in made], [each.given for each in samples])

    def _documents(self, samples: Sequence[Labelled], held_out: bool) -> list[Path]:
        """Return documents with the inputs of samples, written on first use."""
        toolchains = self._environment.toolchains
        which = "held-out" if held_out else "deciding"
        paths = [toolchains.folder / f"labelled-{which}-{number}.json" for number in range(len(samples))]
        for path, sample in zip(paths, samples, strict=True):
            if not path.exists():
                write_values(path, sample.inputs, toolchains.store)
        return paths


def _key(samples: Sequence[Labelled]) -> str:
    """Return a hash of all arrays of samples."""
    digest = hashlib.sha256()
    for sample in samples:
        own = hashlib.sha256()
        digest_values(own, sample.given)
        digest.update(own.digest())
    return digest.hexdigest()
