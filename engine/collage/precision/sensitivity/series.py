"""Run a function several times on one target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir

from collage.errors import PrecisionError
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskHistograms, AskSeries
from collage.measure.wire.outcomes import Failed, Refused
from collage.measure.wire.wire_values import WireValue
from collage.setup.environment import Environment
from collage.setup.workload import Workload
from collage_core.contract import KernelFunction, Target
from collage_core.ir.graph.dataflow import DataflowGraph

_DEADLINE_S: Final = 1200.0
_LEAST_S: Final = 30.0


def as_function(name: str, model: onnx_ir.Model) -> KernelFunction:
    """Return a model as a function whose arguments are its inputs.

    Args:
        name: Name of the function.
        model: The model; it is not copied.
    """
    graph = DataflowGraph(model)
    return KernelFunction(
        name=name,
        model=model,
        inputs=tuple(graph.spec(value) for value in model.graph.inputs),
        outputs=tuple(graph.spec(value) for value in model.graph.outputs),
    )


def run_series(
    environment: Environment[Workload],
    target: Target,
    function: KernelFunction,
    feeds: Sequence[Mapping[str, WireValue]],
    how: str,
) -> list[list[np.ndarray[Any, Any]]]:
    """Build a function once and return its outputs for each of several inputs.

    Args:
        environment: The toolchains at work.
        target: Runs it.
        function: What to run.
        feeds: Its inputs by name, at least one; others that it does not have do not matter.
        how: How that runs the model, for the message.

    Raises:
        PrecisionError: If the target does not run it.
    """
    ask = AskSeries(**_request(environment, target, function, feeds))
    return _answered(environment.toolchains.pool.worker(target.toolchain).series(ask), target, how)


def run_histograms(
    environment: Environment[Workload],
    target: Target,
    function: KernelFunction,
    feeds: Sequence[Mapping[str, WireValue]],
    largest: Sequence[float],
    bins: int,
    how: str,
) -> list[np.ndarray[Any, Any]]:
    """Build a function once and return the counts of each of its outputs over several inputs.

    Args:
        environment: The toolchains at work.
        target: Runs it.
        function: What to run.
        feeds: As for `run_series`.
        largest: Largest magnitude of each output.
        bins: Number of bins, which is even.
        how: As for `run_series`.

    Returns:
        What `collage.values.histogram.count_elements` counts, by output.

    Raises:
        PrecisionError: If the target does not run it.
    """
    request = _request(environment, target, function, feeds)
    ask = AskHistograms(**request, largest=tuple(largest), bins=bins)
    return _answered(environment.toolchains.pool.worker(target.toolchain).evaluate(ask), target, how)


def _request(
    environment: Environment[Workload],
    target: Target,
    function: KernelFunction,
    feeds: Sequence[Mapping[str, WireValue]],
) -> dict[str, Any]:
    """Return the fields of a request that runs a function on several inputs."""
    inputs = [tuple(feed[spec.name] for spec in function.inputs) for feed in feeds]
    return {
        "target": target,
        "function": FunctionEncoder(environment.toolchains.store).encode(function),
        "inputs": inputs[0],
        "further": tuple(inputs[1:]),
        "build": environment.source.settings.build_for(target),
        "deadline_s": environment.budget.exploring.within(_DEADLINE_S, least_s=_LEAST_S),
    }


def _answered(answer: list[Any] | Refused | Failed, target: Target, how: str) -> list[Any]:
    if not isinstance(answer, list):
        raise PrecisionError(f"{target.name} does not run the model {how}: {answer.reason}")
    return answer
