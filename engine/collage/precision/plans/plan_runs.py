"""Runs of plans on several inputs, each plan in a process of its own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from collage.build.plan_builder import PlanBuilder
from collage.build.series_run import run_series
from collage.errors import PrecisionError
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.candidates.plan import Plan
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
        deadline_s = self._environment.budget.within(_DEADLINE_S + _RUN_S * len(inputs), least_s=_LEAST_S)
        failed = run_series(
            plan.name, package, inputs, made, blobs=blobs, threads=toolchains.threads, deadline_s=deadline_s
        )
        if failed is not None:
            raise PrecisionError(failed.reason)
        return made
