"""Errors of plans' outputs on the calibration samples, each found out once per database."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import ClassVar

from collage.build.verifying.output_check import ValueJudge
from collage.errors import PrecisionError
from collage.measure.wire.value_files import read_values
from collage.measure.worker.judge_version import JUDGE
from collage.precision.document_names import document_name, plan_facts
from collage.precision.plans.plan_runs import PlanRuns
from collage.precision.sensitivity.samples import Sample, Samples
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanError:
    """What a plan does to the model's outputs.

    Attributes:
        error: Largest error of an output; infinite if the plan does not run.
        reason: Why it does not run; empty if it does.
    """

    KIND: ClassVar[str] = "plan-error"
    VERSION: ClassVar[int] = 2

    error: float
    reason: str = ""


class PlanErrors:
    """Runs plans and judges their outputs.

    Args:
        environment: The model and the toolchains.
        runs: Builds and runs plans.
        samples: What they are run on.
    """

    def __init__(self, environment: Environment[Workload], runs: PlanRuns, samples: Samples) -> None:
        self._environment = environment
        self._runs = runs
        self._samples = samples

    def __call__(self, plan: Plan) -> PlanError:
        """Return the error of a plan on the calibration samples: the largest of all samples."""
        name = self._name(plan)
        database = self._environment.toolchains.database
        known = database.get_document(PlanError, name)
        if known is None:
            known = self._found(plan)
            if not known.reason:
                database.put_document(name, known)
        return known

    def _found(self, plan: Plan) -> PlanError:
        samples = self._samples.samples()
        try:
            made = self._runs.outputs(plan, [sample.inputs for sample in samples])
        except PrecisionError as error:
            return PlanError(error=math.inf, reason=str(error))
        return max(map(self._judged, samples, made), key=lambda each: (bool(each.reason), each.error))

    def _judged(self, sample: Sample, made: Path) -> PlanError:
        graph = self._environment.graph
        judge = ValueJudge(graph, sample.evaluation, correct=False, relative=math.inf, mismatched=1.0)
        verdicts = {name: judge.verdict(name, value, as_output=True) for name, value in read_values(made).items()}
        wrong = next((f"output {name!r}: {each.problem}" for name, each in verdicts.items() if each.problem), "")
        return PlanError(error=max((each.error for each in verdicts.values()), default=0.0), reason=wrong)

    def _name(self, plan: Plan) -> str:
        what = ["error", *plan_facts(self._environment, plan), JUDGE]
        return document_name(self._environment, plan.targets, what)
