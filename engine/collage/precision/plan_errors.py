"""Errors of plans' outputs on the calibration samples, each found out once per database."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import ClassVar, Final

from collage.build.output_check import ValueJudge
from collage.build.package_contender import SERIES_CALL
from collage.build.plan_builder import PlanBuilder
from collage.measure.contenders.interleaved import Contender, ContenderProcess
from collage.measure.wire.outcomes import Failed
from collage.measure.wire.value_files import read_values
from collage.measure.worker.judge_version import JUDGE
from collage.precision.samples import Sample, Samples
from collage.precision.series import document_name
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.contract import Json
from collage_core.errors import CollageError

_DEADLINE_S: Final = 600.0
_LEAST_S: Final = 20.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanError:
    """What a plan does to the model's outputs.

    Attributes:
        error: Largest error of an output; infinite if the plan does not run.
        reason: Why it does not run; empty if it does.
    """

    KIND: ClassVar[str] = "plan-error"
    VERSION: ClassVar[int] = 1

    error: float
    reason: str = ""


class PlanErrors:
    """Builds plans and runs them, each in a process of its own.

    Args:
        environment: The model and the toolchains.
        builder: Builds plans.
        samples: What they are run on.
    """

    def __init__(self, environment: Environment[Workload], builder: PlanBuilder, samples: Samples) -> None:
        self._environment = environment
        self._samples = samples
        self._builder = builder

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
        environment = self._environment
        toolchains, samples = environment.toolchains, self._samples.samples()
        folder = toolchains.folder
        package = folder / "trial.collage"
        made = [folder / f"trial-{number}.json" for number in range(len(samples))]
        try:
            assembled = self._builder.build(plan)
            assembled.save(package, None, threads=toolchains.threads, model_name=plan.name, model_sha256="")
        except CollageError as error:
            return PlanError(error=math.inf, reason=str(error))
        arguments: dict[str, Json] = {
            "package": str(package),
            "inputs": [str(sample.inputs) for sample in samples],
            "outputs": [str(path) for path in made],
            "blobs": str(toolchains.store.directory),
            "threads": toolchains.threads,
        }
        with ContenderProcess(Contender(name=plan.name, call=SERIES_CALL, arguments=arguments)) as process:
            ran = process.prepare(environment.budget.within(_DEADLINE_S, least_s=_LEAST_S))
        if isinstance(ran, Failed):
            return PlanError(error=math.inf, reason=ran.reason)
        return max(map(self._judged, samples, made), key=lambda each: (bool(each.reason), each.error))

    def _judged(self, sample: Sample, made: Path) -> PlanError:
        graph = self._environment.graph
        judge = ValueJudge(graph, sample.evaluation, correct=False, relative=math.inf, mismatched=1.0)
        verdicts = {name: judge.verdict(name, value, as_output=True) for name, value in read_values(made).items()}
        wrong = next((f"output {name!r}: {each.problem}" for name, each in verdicts.items() if each.problem), "")
        return PlanError(error=max((each.error for each in verdicts.values()), default=0.0), reason=wrong)

    def _name(self, plan: Plan) -> str:
        environment = self._environment
        toolchains = environment.toolchains
        host = toolchains.host.fingerprint_for(*(kernel.target.device for kernel in plan.kernels))
        plugins = [toolchains.plugins[name] for name in plan.toolchains]
        what = ["error", plan.key, host, toolchains.threads, plugins, JUDGE]
        return document_name(environment, plan.targets, what)
