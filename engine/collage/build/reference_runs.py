"""What the reference says of a whole model: on fresh inputs, and on inputs that hold NaN."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import onnx_ir

from collage.build.verifying.nan_probe import NanProbe
from collage.build.verifying.output_check import needed
from collage.errors import ModelCostError
from collage.measure.budget import Budget
from collage.measure.driver.capture import DEADLINE_S, Capture
from collage.reference import Evaluation
from collage.reference.vacuous import vacuous_outputs
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.errors import EvaluationError

LEAST_S = 10.0
"""Seconds of each step of a verification, though the budget is spent."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReferenceRuns:
    """Runs the reference in the process that runs models.

    Attributes:
        environment: The model and the toolchains.
    """

    environment: Environment[Workload]

    def fresh(self) -> tuple[Mapping[str, Any], Evaluation]:
        """Return inputs that no measurement has seen, and all values that a plan is judged by.

        Inputs are drawn again while outputs say too little, as all zeros do.
        """
        workload = self.environment.workload
        names = needed(workload.graph, self._outputs())
        inputs = workload.fresh_inputs()
        evaluation = self.evaluate(workload.graph.model, inputs, names)
        while vacuous_outputs(workload.graph, evaluation.values.__getitem__) and workload.redraw():
            inputs = workload.fresh_inputs()
            evaluation = self.evaluate(workload.graph.model, inputs, names)
        return inputs, evaluation

    def of_sizes(self, sizes: Mapping[str, int]) -> tuple[Mapping[str, Any], Evaluation]:
        """Return inputs of other sizes than the typical ones, and all values that a plan is judged by.

        Args:
            sizes: Size of each symbol in the shapes of the model's inputs.

        Raises:
            EvaluationError: If the reference cannot run it.
            ModelCostError: If it takes too long, or too much memory.
        """
        workload = self.environment.workload
        inputs = workload.inputs_of(sizes)
        return inputs, self.evaluate(workload.graph.model, inputs, needed(workload.graph, self._outputs()))

    def probe(self, inputs: Mapping[str, Any]) -> NanProbe | None:
        """Return what shows whether a plan keeps NaN, if there is time and the reference can say what it should do."""
        outputs = self._outputs()

        def reference(spoilt: Mapping[str, Any]) -> Mapping[str, Any]:
            found = self.evaluate(self.environment.graph.model, spoilt, outputs, conditioned=False)
            return {name: value for name, value in found.values.items() if name in outputs}

        if self.environment.budget.is_spent:
            return None
        try:
            return NanProbe.of(inputs, reference)
        except (EvaluationError, ModelCostError):  # a size, or the number of steps, may follow from the numbers
            return None

    def evaluate(
        self,
        model: onnx_ir.Model,
        inputs: Mapping[str, Any],
        names: Collection[str],
        budget: Budget | None = None,
        *,
        conditioned: bool = True,
    ) -> Evaluation:
        """Run the reference.

        Args:
            model: The model.
            inputs: Its inputs, by name.
            names: Values to keep.
            budget: Time that this may take; None for what is left of the run's.
            conditioned: Whether to find out what rounding does to each value.

        Raises:
            EvaluationError: If the reference cannot run it.
            ModelCostError: If it takes too long, or too much memory.
        """
        environment = self.environment
        return Capture.take(
            model,
            inputs,
            environment.toolchains.store,
            models=environment.toolchains.pool.models,
            fallback=environment.fallback,
            deadline_s=(budget or environment.budget).within(DEADLINE_S, least_s=LEAST_S),
            keep=names,
            conditioned=conditioned,
        ).evaluation()

    def is_conditioned(self, evaluation: Evaluation) -> bool:
        """Return whether it is known of every output what rounding does to it: there was the time to find out."""
        outputs = [name for name in self._outputs() if isinstance(evaluation.values.get(name), np.ndarray)]
        return all(name in evaluation.conditioning for name in outputs)

    def _outputs(self) -> list[str]:
        return [str(value.name) for value in self.environment.graph.model.graph.outputs]
