"""OpenVINO's profile of a kernel, attributed to the nodes of the kernel's function."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collage_core.contract import (
    Artifact,
    BoundCall,
    Kernel,
    KernelFunction,
    KernelProfile,
    LibraryStep,
    RunContext,
    Target,
    Unsupported,
    attributed,
)
from collage_openvino.kernel import import_model, kernel_over
from collage_openvino.weights import positions_in

_MOVES = frozenset({"Reorder", "Convert", "Transpose", "Reshape"})
"""Types of nodes that the CPU plugin inserts to change a value's layout, shape or type."""

_BOUNDARY = frozenset({"Input", "Output"})


def profile(
    core: Any,
    target: Target,
    function: KernelFunction,
    artifact: Artifact,
    run: RunContext,
    bind: Callable[[Kernel], BoundCall],
    runs: int,
) -> KernelProfile | Unsupported:
    """Run an artifact with OpenVINO's performance counters on.

    Args:
        core: An `openvino.Core`.
        target: Target that determines the precision.
        function: What the artifact was lowered from.
        artifact: Artifact returned by `lower`.
        run: As for `load`.
        bind: Binds the kernel to buffers that hold its inputs.
        runs: Number of runs, besides the first, which does not count.

    Returns:
        The profile, with the typical time of each node. Or why the model cannot be imported.
    """
    compiled = import_model(core, target, artifact, run, {"PERF_COUNT": True})
    if isinstance(compiled, Unsupported):
        return compiled
    call = bind(kernel_over(compiled, artifact))
    means = []
    for _ in range(runs + 1):
        call()
        means.append(_mean_times(compiled))
    times = {name: _typical([each.get(name, 0.0) for each in means]) for name in means[-1]}
    return attributed(function, _steps(compiled.get_runtime_model(), function, times))


def _typical(means: Sequence[float]) -> float:
    """Return the typical microseconds of a run after the first, from the means of the first 1, 2, 3, ... runs.

    Means are whole microseconds, so the time of a single run, from the difference of two sums, is off by as many as
    there were runs. The mean is not, but has what disturbed one run in it: the median is used where that matters.

    Examples:
        >>> _typical([50.0, 30.0, 23.0, 20.0])  # 50, 10, 9, 11
        10.0
        >>> _typical([10.0, 10.0, 340.0, 257.0])  # 10, 10, 1000, 8
        10.0
    """
    sums = [mean_us * count for count, mean_us in enumerate(means, start=1)]
    runs = [after - before for before, after in itertools.pairwise(sums)]
    mean_us, median_us = statistics.fmean(runs), statistics.median(runs)
    return max(0.0, median_us if mean_us - median_us > len(means) else mean_us)


def _mean_times(compiled: Any) -> dict[str, float]:
    """Return the mean microseconds of each node that inference visits, over all runs so far.

    The counters are the compiled model's, whichever request reads them. Nodes that compute constants are not listed.
    """
    listed = compiled.create_infer_request().get_profiling_info()
    return {str(each.node_name): each.real_time.total_seconds() * 1e6 for each in listed}


def _steps(model: Any, function: KernelFunction, times: Mapping[str, float]) -> list[LibraryStep]:
    """Return the nodes of a runtime model with their times, and what is known of the original nodes they compute.

    `originalLayersNames` has the names of all nodes that were fused into one: those that `source_of` gave, or those
    that a transformation made up. An inserted reorder has none.
    """
    names = [str(node.name) for node in function.model.graph]
    producers = ((str(value.name), value.producer()) for value in function.model.graph.outputs)
    outputs = {name: str(node.name) for name, node in producers if node is not None}
    steps: list[LibraryStep] = []
    places: dict[str, int] = {}
    for node in model.get_ordered_ops():
        name = str(node.get_friendly_name())
        if name not in times:
            continue
        facts = node.get_rt_info()
        kind, original = str(_text(facts, "layerType")), _text(facts, "originalLayersNames")
        nodes: tuple[str, ...] = ()
        if kind not in _BOUNDARY:
            found = positions_in(original)
            nodes = tuple(dict.fromkeys(names[place] for place in found)) or _output_of(name, outputs)
        reads = dict.fromkeys(str(each.get_node().get_friendly_name()) for each in node.input_values())
        places[name] = len(steps)
        steps.append(
            LibraryStep(
                name=f"{kind} {name}",
                time_us=times[name],
                nodes=nodes,
                reads=tuple(places[each] for each in reads if each in places),
                converts=not nodes and kind in _MOVES,
            )
        )
    return steps


def _output_of(name: str, outputs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the original node that writes the model's output after which a node is named: `y`, `y.0`, `y.0.0`."""
    while name not in outputs and "." in name:
        name = name.rpartition(".")[0]
    return (outputs[name],) if name in outputs else ()


def _text(facts: Mapping[str, Any], key: str) -> str:
    return str(getattr(facts[key], "value", facts[key])) if key in facts else ""
