"""Verify the chosen plan: saved, loaded in a fresh process, and run on inputs the search never saw."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from collage.build.package_contender import TRIAL_CALL
from collage.build.series_run import run_series
from collage.build.verifying.nan_probe import ENDED, NanProbe
from collage.build.verifying.output_check import RANDOM_REASON, ValueJudge, random_values
from collage.errors import PlanRunError, TooInexactError, VerificationError
from collage.measure.contenders.interleaved import Contender, ContenderProcess, took_too_long
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed
from collage.measure.wire.value_files import read_values, write_values
from collage.reference import Evaluation
from collage.reference.vacuous import vacuous_outputs
from collage.report.documents.codec import read_part
from collage.report.facts.device_facts import DeviceWorkFacts
from collage_core.contract import Json
from collage_core.ir.graph.dataflow import DataflowGraph

DEADLINE_S = 600.0
"""Seconds that loading and running a package may take."""
_MOSTLY = 0.5
"""Share of an output's elements that choices leave open from which it does not count as checked."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verified:
    """Results of a package on fresh inputs.

    Attributes:
        max_error: Largest error of an output, relative to its scale.
        measured_us: Median time of each call site within the whole run; not of those launched as part of a graph.
        site_errors: Error of each call site on the captured values.
        unchecked: By name, reason for which a node, or the model for some sizes, is unchecked: the reference could not
            compute it itself, or its output has no reference value, or it is zero, or NaN, everywhere.
        work: Launches, copies and synchronisations of each run on devices.
        nan: What it makes of NaN in its inputs, see `NanProbe.found`; empty if that was not looked at.
        artifacts: What was verified, see `Assembled.digest`.
    """

    KIND: ClassVar[str] = "verification"
    VERSION: ClassVar[int] = 3

    max_error: float
    measured_us: Mapping[str, float]
    site_errors: Mapping[str, float]
    unchecked: Mapping[str, str]
    work: DeviceWorkFacts
    nan: str = ""
    artifacts: str = ""

    def with_unchecked(self, name: str, reason: str) -> Verified:
        """Return the results with something more that is unchecked."""
        return dataclasses.replace(self, unchecked={**self.unchecked, name: reason})


def verify(
    package: Path,
    graph: DataflowGraph,
    inputs: Mapping[str, Any],
    *,
    store: BlobStore,
    folder: Path,
    threads: int,
    correct: bool,
    tolerance: float,
    evaluation: Evaluation,
    site_errors: Mapping[str, float],
    probe: NanProbe | None = None,
    deadline_s: float = DEADLINE_S,
) -> Verified:
    """Run a package once in a separate process and compare its outputs with those of the reference.

    Args:
        package: Path of the package.
        graph: Graph of the prepared model.
        inputs: Input values, by name.
        store: Stores tensors.
        folder: Directory for documents.
        threads: CPU threads of each kernel.
        correct: Whether outputs have to be correct; otherwise only their error counts.
        tolerance: Largest error, relative to an output's scale.
        evaluation: The reference's values on the inputs; those that `needed` names for the outputs.
        site_errors: Error of each call site on the captured values; copied into the result.
        probe: What it is run with besides, whatever comes of it.
        deadline_s: Time limit for loading and running the package.

    Raises:
        PlanRunError: If the package does not run.
        TooInexactError: If only an error of its outputs is too large, of a plan that need not be correct.
        VerificationError: If its outputs are wrong.
    """
    given, made, timed = folder / "fresh-inputs.json", folder / "fresh-outputs.json", folder / "profile.json"
    write_values(given, inputs, store)
    places = {"package": package, "inputs": given, "outputs": made, "profile": timed, "blobs": store.directory}
    arguments: dict[str, Json] = {name: str(path) for name, path in places.items()} | {"threads": threads}
    probed = [folder / "probe-inputs.json", folder / "probe-outputs.json"]
    for path in (made, timed, *probed):
        path.unlink(missing_ok=True)
    if probe is not None:
        write_values(probed[0], probe.inputs, store)
        arguments["probe"] = [str(path) for path in probed]
    with ContenderProcess(Contender(name="the saved plan", call=TRIAL_CALL, arguments=arguments)) as process:
        ran = process.prepare(deadline_s)
    if isinstance(ran, Failed) and not timed.exists():  # otherwise it failed on the probe
        raise PlanRunError(f"the saved plan does not run: {ran.reason}", is_late=took_too_long(ran))
    try:
        largest, unchecked = largest_error(graph, read_values(made), evaluation, correct=correct, tolerance=tolerance)
    except TooInexactError as error:
        message = f"the saved plan is too inexact on fresh inputs: {error}"
        raise TooInexactError(message, error.excess) from error
    except VerificationError as error:
        raise VerificationError(f"the saved plan is wrong on fresh inputs: {error}") from error
    try:
        profile = json.loads(timed.read_text(encoding="utf-8"))
    except ValueError as error:  # it was ended while it wrote
        raise PlanRunError(f"the saved plan does not run: its profile is not whole ({error})") from error
    nan = ""
    if probe is not None:
        nan = probe.found(read_values(probed[1])) if probed[1].exists() and not isinstance(ran, Failed) else ENDED
    return Verified(
        max_error=largest,
        measured_us=profile["measured_us"],
        site_errors=site_errors,
        unchecked=unchecked,
        work=read_part(profile["work"], DeviceWorkFacts, str(timed)),
        nan=nan,
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Sample:
    """Inputs of some sizes, and what is right for them.

    Attributes:
        name: Its sizes, for messages.
        inputs: Input values, by name.
        evaluation: The reference's values; those that `needed` names for the outputs.
    """

    name: str
    inputs: Mapping[str, Any]
    evaluation: Evaluation


def verify_in_turn(
    package: Path,
    graph: DataflowGraph,
    samples: Sequence[Sample],
    *,
    store: BlobStore,
    folder: Path,
    threads: int,
    correct: bool,
    tolerance: float,
    deadline_s: float = DEADLINE_S,
) -> float:
    """Run a package on inputs of several sizes in one process, in the order given, and return the largest error.

    A library may keep from one size what is wrong for another: OpenVINO 2026.4.1 computes attention of two heads wrong
    for 16 or more tokens if its first run had one.

    Args:
        package: Path of the package.
        graph: Graph of the prepared model.
        samples: The inputs.
        store: As for `verify`.
        folder: As for `verify`.
        threads: As for `verify`.
        correct: As for `verify`.
        tolerance: As for `verify`.
        deadline_s: Time limit for loading the package and all runs.

    Raises:
        PlanRunError: If the package does not run.
        VerificationError: If its outputs are wrong.
    """
    given = [folder / f"turn-inputs-{number}.json" for number in range(len(samples))]
    made = [folder / f"turn-outputs-{number}.json" for number in range(len(samples))]
    for path, sample in zip(given, samples, strict=True):
        write_values(path, sample.inputs, store)
    failed = run_series(
        "the saved plan", package, given, made, blobs=store.directory, threads=threads, deadline_s=deadline_s
    )
    if failed is not None:
        message = f"the saved plan does not run for sizes in turn: {failed.reason}"
        raise PlanRunError(message, is_late=took_too_long(failed))
    largest = 0.0
    for number, (path, sample) in enumerate(zip(made, samples, strict=True)):
        try:
            error, _ = largest_error(graph, read_values(path), sample.evaluation, correct=correct, tolerance=tolerance)
        except VerificationError as wrong:
            before = f" after {samples[number - 1].name}" if number else ""
            message = f"the saved plan is wrong for {sample.name}{before}: {wrong}"
            if isinstance(wrong, TooInexactError):
                raise TooInexactError(message, wrong.excess) from wrong
            raise VerificationError(message) from wrong
        largest = max(largest, error)
    return largest


def largest_error(
    graph: DataflowGraph, made: Mapping[str, Any], evaluation: Evaluation, *, correct: bool, tolerance: float
) -> tuple[float, Mapping[str, str]]:
    """Compare the outputs of a model with those of the reference.

    Args:
        graph: Graph of the prepared model.
        made: Outputs, by name.
        evaluation: The reference; its values are those that `needed` names for the outputs.
        correct: Whether outputs have to be correct; otherwise only their error counts.
        tolerance: Largest error, relative to an output's scale.

    Returns:
        The largest error, and `Verified.unchecked`.

    Raises:
        TooInexactError: If an output is further off than is allowed, where only errors count.
        VerificationError: If an output is wrong.
    """
    judge = ValueJudge(graph, evaluation, correct=correct, relative=tolerance, mismatched=tolerance)
    largest, unchecked, chance = 0.0, dict(evaluation.unchecked), random_values(graph)
    far: TooInexactError | None = None
    for name, actual in made.items():
        verdict = judge.verdict(name, actual, as_output=True)
        if verdict.problem and not correct and tolerance < verdict.error < math.inf:
            excess = verdict.error / tolerance
            if far is None or excess > far.excess:
                far = TooInexactError(f"output {name!r}: {verdict.problem}", excess)
        elif verdict.problem:
            raise VerificationError(f"output {name!r}: {verdict.problem}")
        if name in chance:
            unchecked[chance[name]] = RANDOM_REASON
        if (share := judge.left_open(name)) > _MOSTLY:
            said = f"{share:.0%} of the elements of output {name!r} may differ, as choices before them may"
            unchecked[_producer(graph, name)] = said
        largest = max(largest, verdict.error)
    if far is not None:
        raise far
    for name, what in vacuous_outputs(graph, evaluation.values.__getitem__).items():
        if producer := _producer(graph, name):
            unchecked[producer] = f"output {name!r} is {what} everywhere on all inputs that were tried"
    return largest, unchecked


def _producer(graph: DataflowGraph, output: str) -> str:
    """Return the name of the node that computes an output; empty if none does."""
    producer = next(value.producer() for value in graph.model.graph.outputs if value.name == output)
    return "" if producer is None else str(producer.name)
