"""Run a saved package in a contender's process, loaded and bound exactly as by a user."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.value_files import read_values, write_values
from collage.report.documents.codec import to_jsonable
from collage.report.facts.device_facts import describe_work
from collage.runtime.load import load
from collage_core.contract.device import HOST
from collage_core.errors import CollageError

PACKAGE_CALL = f"{__name__}:package_call"
"""Name of `package_call`, as passed to a contender process."""
TRIAL_CALL = f"{__name__}:trial_call"
"""Name of `trial_call`."""
SERIES_CALL = f"{__name__}:series_call"
"""Name of `series_call`."""
_FEWEST_RUNS, _MOST_RUNS, _PROFILED_S = 5, 20, 0.5
"""Runs that steps are timed in, and seconds that these may take where they are not the fewest."""


class _Turns:
    """A call whose runs have other inputs each time, as users call them.

    Attributes:
        cycle: Runs after which the inputs begin again.
        has_run: As of `_Run`.
        parts: As of `_Run`, for the sizes of the first inputs.
        stream: As of `_Run`.
    """

    has_run = True
    parts: Mapping[str, Callable[[], Any]]
    stream: Callable[[], Callable[[], Any]]

    def __init__(self, run: Callable[..., Any], feeds: Sequence[Mapping[str, Any]]) -> None:
        self._run = run
        self.cycle = len(feeds)
        self._feeds = itertools.cycle(feeds)

    def __call__(self) -> Any:
        return self._run(None, next(self._feeds))


class _Run(functools.partial[Any]):
    """A bound call that keeps its session alive; calling a partial has no measurable cost.

    Attributes:
        as_called: The same run as users call it.
        has_run: Says that it ran, so that nobody runs it once more before it is timed.
        parts: Its steps, by name, if it has several and all are on the host.
        stream: Makes a call that may run beside it: that of a clone, as users call it.
    """

    has_run = True
    as_called: Callable[[], Any]
    parts: Mapping[str, Callable[[], Any]]
    stream: Callable[[], Callable[[], Any]]


def package_call(
    package: str, inputs: Sequence[str], threads: int, warmup: int = 0, trusted: bool = False
) -> Callable[[], Any]:
    """Load a package and bind one run of it; with several inputs, have runs take them in turn, unbound.

    Args:
        package: Path of the package.
        inputs: Paths of documents of `write_values` with the model's inputs.
        threads: CPU threads of each kernel.
        warmup: Runs before the call is returned.
        trusted: Whether the driver has just written the package.

    Returns:
        The call, without arguments; each call is one run of the model. Its attribute `as_called` is `session.run`,
        unless it is that itself, `parts` are its steps, and `stream` makes a call that may run beside it.
    """
    session = load(package, threads=threads, trusted=trusted)
    feeds = [read_values(Path(each)) for each in inputs]
    session.set_inputs(feeds[0])
    session.run_bound()
    run: _Run | _Turns
    if len(feeds) > 1:
        run = _Turns(session.run, feeds)
        for _ in range(len(feeds) * session.runs_until_bound):  # a process that serves has met its sizes before
            run()
    else:
        run = _Run(session.bound_call)
        run.as_called = functools.partial(session.run, None, feeds[0])
    run.stream = lambda: _Turns(session.clone().run, feeds)
    for _ in range(warmup):
        run()
    steps = session.bound_steps
    if len(steps) > 1 and all(step.device == HOST for step in steps):
        run.parts = {step.name: step.call for step in steps}
    return run


def trial_call(
    package: str, inputs: str, outputs: str, profile: str, blobs: str, threads: int, probe: Sequence[str] = ()
) -> Callable[[], None]:
    """Create a call that loads a package that the driver has just written, runs it once, and writes what it gives.

    Args:
        package: Path of the package.
        inputs: Path of a document of `write_values` with the model's inputs.
        outputs: Path of the document to write the outputs to.
        profile: Path of the JSON document to write: median microseconds by call site, without those that a run
            launches as part of a graph, and device work.
        blobs: Directory for the bytes of the outputs.
        threads: CPU threads of each kernel.
        probe: Paths of other inputs, and of what it gives for them; nothing is written if it fails on these.
    """

    def call() -> None:
        session = load(package, threads=threads, trusted=True)
        names = [output.name for output in session.get_outputs()]
        feeds = read_values(Path(inputs))
        began = time.perf_counter()
        made = dict(zip(names, session.run(None, feeds), strict=True))
        steps = session.profile(feeds, runs=profiled_runs(time.perf_counter() - began)).steps
        write_values(Path(outputs), made, BlobStore(Path(blobs)))
        work = to_jsonable(describe_work(session.device_work()))
        # a profile calls these one by one, and what a launch of each then takes is not in the run
        captured = {name for launch in session.launches if launch.mode == "graph" for name in launch.steps}
        times = {step.name: step.median_us for step in steps if step.target != "host" and step.name not in captured}
        Path(profile).write_text(json.dumps({"measured_us": times, "work": work}), encoding="utf-8")
        if probe:
            with contextlib.suppress(CollageError):
                probed = session.run(None, read_values(Path(probe[0])))
                write_values(Path(probe[1]), dict(zip(names, probed, strict=True)), BlobStore(Path(blobs)))

    return call


def series_call(
    package: str, inputs: Sequence[str], outputs: Sequence[str], blobs: str, threads: int
) -> Callable[[], None]:
    """Create a call that loads a package that the driver has just written, and runs it on several inputs.

    Args:
        package: Path of the package.
        inputs: Paths of documents of `write_values` with the model's inputs.
        outputs: Paths of the documents to write the outputs to, one for each.
        blobs: Directory for the bytes of the outputs.
        threads: CPU threads of each kernel.
    """

    def call() -> None:
        session = load(package, threads=threads, trusted=True)
        names = [output.name for output in session.get_outputs()]
        for given, made in zip(inputs, outputs, strict=True):
            values = session.run(None, read_values(Path(given)))
            write_values(Path(made), dict(zip(names, values, strict=True)), BlobStore(Path(blobs)))

    return call


def profiled_runs(run_s: float) -> int:
    """Return in how many runs steps are timed.

    Args:
        run_s: Seconds that one run takes.

    Examples:
        >>> profiled_runs(0.001), profiled_runs(0.05), profiled_runs(2.0)
        (20, 10, 5)
    """
    return min(_MOST_RUNS, max(_FEWEST_RUNS, round(_PROFILED_S / max(run_s, 1e-6))))
