"""A Collage package: the only contender that imports Collage, and only when it is set up."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

WARM_UP = 3
"""Runs on a device before the first timed one: graphs are captured in the second."""


def setup(
    model_path: str, inputs: dict[str, np.ndarray[Any, Any]], threads: int, *, device: str = "cpu"
) -> Callable[[], Any]:
    """Load a package and bind its inputs.

    Args:
        model_path: The `.collage` package, given to the harness as `:model=PATH`.
        inputs: Arrays by input name.
        threads: For how many threads the package was made is its own matter; this is not used.
        device: Where inputs and outputs are, `cpu` or a device of the plan.
    """
    import collage  # Not installed where only the toolchains are judged.

    session = collage.load(model_path)
    if device == "cpu":
        run = session.bind(inputs)
    else:
        run = session.bind(
            dict.fromkeys(inputs, device), dict.fromkeys((output.name for output in session.get_outputs()), device)
        )
        for name, array in inputs.items():
            run.inputs[name].set(array)
            run.inputs[name].device.synchronize()  # CuPy's stream is not the plan's
        for _ in range(WARM_UP):
            run.call()
    call = functools.partial(run.call)
    call.outputs = lambda: {name: _on_host(value) for name, value in run.outputs.items()}  # type: ignore[attr-defined]
    if device == "cpu":
        call.as_called = functools.partial(session.run, None, inputs)  # type: ignore[attr-defined]
    call.note = launched(run.launches)  # type: ignore[attr-defined]
    call.kept = (session, run, inputs)  # type: ignore[attr-defined]  # They own the memory.
    return call


def launched(launches: Any) -> str:
    """Describe how a run's device kernels are launched; empty if it has none.

    Args:
        launches: `BoundRun.launches`.
    """
    graphs = [len(each.steps) for each in launches if each.mode == "graph"]
    eager = [each for each in launches if each.mode != "graph"]
    parts = [f"{len(graphs)} CUDA graphs of {sum(graphs)} steps"] if graphs else []
    if eager:
        reasons = sorted({each.reason for each in eager})
        parts.append(f"{sum(len(each.steps) for each in eager)} steps launched one by one: {'; '.join(reasons)}")
    return ", ".join(parts)


def _on_host(value: Any) -> Any:
    """Return the host copy of a device array, obtained by its `get`; return a host value unchanged."""
    return value.get() if hasattr(value, "get") else value
