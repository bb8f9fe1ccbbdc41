"""Runs of plans on several inputs, each plan in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from collage.build.package_contender import SERIES_CALL
from collage.build.plan_builder import PlanBuilder
from collage.errors import PrecisionError
from collage.measure.contenders.interleaved import Contender, ContenderProcess
from collage.measure.wire.outcomes import Failed
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
from collage_core.contract import Json
from collage_core.errors import CollageError

_DEADLINE_S: Final = 600.0
_RUN_S: Final = 60.0
"""Seconds that loading, and each run, may take."""
_LEAST_S: Final = 20.0


class PlanRuns:
    """Builds plans and runs them.

    Args:
        environment: The model and the toolchains.
        builder: Builds plans.
    """

    def __init__(self, environment: Environment[Workload], builder: PlanBuilder) -> None:
        self._environment = environment
        self._builder = builder

    def outputs(self, plan: Plan, inputs: Sequence[Path]) -> list[Path]:
        """Run a plan on several inputs and return the document with the outputs of each; the next run replaces them.

        Args:
            plan: The plan.
            inputs: Documents with the model's inputs.

        Raises:
            PrecisionError: If it cannot be built, or does not run.
        """
        toolchains = self._environment.toolchains
        package, blobs = toolchains.folder / "trial.collage", toolchains.folder / "trial-blobs"
        shutil.rmtree(blobs, ignore_errors=True)  # those of a plan before, which may be large
        blobs.mkdir()
        made = [toolchains.folder / f"trial-{number}.json" for number in range(len(inputs))]
        try:
            assembled = self._builder.build(plan)
            assembled.save(package, None, threads=toolchains.threads, model_name=plan.name, model_sha256="")
        except CollageError as error:
            raise PrecisionError(str(error)) from error
        arguments: dict[str, Json] = {
            "package": str(package),
            "inputs": [str(path) for path in inputs],
            "outputs": [str(path) for path in made],
            "blobs": str(blobs),
            "threads": toolchains.threads,
        }
        with ContenderProcess(Contender(name=plan.name, call=SERIES_CALL, arguments=arguments)) as process:
            ran = process.prepare(self._environment.budget.within(_DEADLINE_S + _RUN_S * len(inputs), least_s=_LEAST_S))
        if isinstance(ran, Failed):
            raise PrecisionError(ran.reason)
        return made
