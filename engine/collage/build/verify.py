"""Verify the chosen plan: saved, loaded in a fresh process, and run on inputs the search never saw."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from collage.build.output_check import (
    RANDOM_REASON,
    compared_outputs,
    output_discrepancy,
    random_discrepancy,
    random_values,
)
from collage.build.package_contender import TRIAL_CALL
from collage.errors import VerificationError
from collage.measure.contenders.interleaved import Contender, ContenderProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.outcomes import Failed
from collage.measure.wire.value_files import read_values, write_values
from collage.reference import Fallback, evaluate
from collage.reference.rounded import rounded_problem
from collage.report.documents.codec import read_part
from collage.report.facts.device_facts import DeviceWorkFacts
from collage_core.contract import Json
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantised import roundings

_DEADLINE_S = 600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verified:
    """Results of a package on fresh inputs.

    Attributes:
        max_error: Largest error of an output, relative to its scale.
        measured_us: Median time of each call site within the whole run.
        site_errors: Error of each call site on the captured values.
        unchecked: By name, reason for which a node is unchecked: the reference could not compute it itself, or its
            output has no reference value.
        work: Launches, copies and synchronisations of each run on devices.
    """

    KIND: ClassVar[str] = "verification"
    VERSION: ClassVar[int] = 1

    max_error: float
    measured_us: Mapping[str, float]
    site_errors: Mapping[str, float]
    unchecked: Mapping[str, str]
    work: DeviceWorkFacts


def verify(
    package: Path,
    graph: DataflowGraph,
    inputs: Mapping[str, Any],
    *,
    store: BlobStore,
    folder: Path,
    threads: int,
    tolerance: float,
    fallback: Fallback | None,
    site_errors: Mapping[str, float],
) -> Verified:
    """Run a package once in a separate process and compare its outputs with those of the reference.

    Args:
        package: Path of the package.
        graph: Graph of the prepared model.
        inputs: Input values, by name.
        store: Stores tensors.
        folder: Directory for documents.
        threads: CPU threads of each kernel.
        tolerance: Largest error, relative to an output's scale.
        fallback: Computes what the reference cannot.
        site_errors: Error of each call site on the captured values; copied into the result.

    Raises:
        VerificationError: If the package does not run, or its outputs are wrong.
    """
    given, made, timed = folder / "fresh-inputs.json", folder / "fresh-outputs.json", folder / "profile.json"
    write_values(given, inputs, store)
    places = {"package": package, "inputs": given, "outputs": made, "profile": timed, "blobs": store.directory}
    arguments: dict[str, Json] = {name: str(path) for name, path in places.items()} | {"threads": threads}
    with ContenderProcess(Contender(name="the saved plan", call=TRIAL_CALL, arguments=arguments)) as process:
        ran = process.prepare(_DEADLINE_S)
    if isinstance(ran, Failed):
        raise VerificationError(f"the saved plan does not run: {ran.reason}")
    compared = compared_outputs(graph)
    rounded = {str(value.name): count for value, count in roundings(graph.nodes).items()}
    wanted = {*compared.values(), *(str(v.name) for v in graph.model.graph.outputs)}
    evaluation = evaluate(graph.model, inputs, fallback=fallback, keep=wanted.__contains__)
    largest, unchecked, chance = 0.0, dict(evaluation.unchecked), random_values(graph)
    for name, actual in read_values(made).items():
        if name in chance:
            found = random_discrepancy(actual, evaluation.values[name])
            unchecked[chance[name]] = RANDOM_REASON
        else:
            found = output_discrepancy(graph, name, actual, evaluation.values)
        if name in rounded and name not in chance:
            right = evaluation.values[compared[name]]
            why = rounded_problem(
                found, actual, right, roundings=rounded[name], relative=tolerance, mismatched=tolerance
            )
        else:
            why = found.reason or (
                f"error {found.error:.3g} of its scale, allowed {tolerance:.3g}" if found.error > tolerance else ""
            )
        if why:
            raise VerificationError(f"output {name!r} of the saved plan is wrong on fresh inputs: {why}")
        largest = max(largest, found.error)
    profile = json.loads(timed.read_text(encoding="utf-8"))
    return Verified(
        max_error=largest,
        measured_us=profile["measured_us"],
        site_errors=site_errors,
        unchecked=unchecked,
        work=read_part(profile["work"], DeviceWorkFacts, str(timed)),
    )
