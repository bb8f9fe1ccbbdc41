"""Compile a model quickly: real candidates, checked kernels and an exact search, but no race of whole plans.

`optimize` spends most of its time on deciding which of several good plans is the fastest. A user who wants to run a
model now, on the installed toolchains, needs only the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx_ir

from collage.build.assemble import Assembled, assemble
from collage.build.verifying.output_check import random_values
from collage.errors import PlanBuildError
from collage.explore.by_options import explained
from collage.explore.exhaustive import explore_exhaustively
from collage.explore.exploration import ExplorationSetup, Explored, UncoveredError
from collage.measure.driver.capture import Capture, random_nodes
from collage.measure.driver.settings import MeasureSettings
from collage.measure.models.preparing import PREPARE_S, prepared_in
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage.options import Preset
from collage.prepare.shapes import free_inputs
from collage.prepare.validity import blamed_on
from collage.reference.discrepancy import is_floating
from collage.report.progress import Progress, SilentProgress
from collage.runtime import Executable, loader
from collage.runtime.session import Session
from collage.setup.environment import Environment
from collage.setup.prepared_model import PreparedModel
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices
from collage.setup.targets import ON_REQUEST
from collage.setup.toolchains import Toolchains
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.explanation import refusals, why_uncovered
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Protocol
from collage_core.errors import CollageError, NoCoverError
from collage_core.fusion import CandidateBounds
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.search import SearchCandidate

AT_ONCE: Final = Preset(
    name="at once",
    operators=4,
    coalesce_rounds=0,
    confirm_rounds=0,
    challengers=0,
    rounds=0,
    round_s=0.0,
    race_s=0.0,
    protocol=Protocol(warmup_runs=1, warmup_s=0.0, min_samples=1, max_samples=1, duration_s=0.0, min_sample_us=0.0),
    effort=0,
    max_variants=1,
    device_variants=1,
    deadline_s=60.0,
)
"""One sample per candidate: enough to avoid kernels that are far slower, not enough to decide between close ones."""

BOUNDS: Final = CandidateBounds(segments=2, max_depth=4, max_candidates=200)

_RTOL: Final = 1e-3
_ATOL: Final = 1e-7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Compiled:
    """A model ready to run in this process.

    Attributes:
        session: Session that runs the model.
        assembled: The plan, with each kernel's error against the reference.
        unchecked: Reason for each node the reference could not compute itself, by node name.
    """

    session: Session
    assembled: Assembled
    unchecked: Mapping[str, str]


class Compiler:
    """Compiles models one after another over the same workers and the same database.

    The toolchains that take part only when asked for, such as `reference`, get what no other covers.

    Args:
        toolchains: Those at work; they stay the caller's to close.
        tolerance: Largest error of a kernel, relative to its tensor's scale.
        preset: How much to measure.
        progress: Is told what happens.
    """

    def __init__(
        self,
        toolchains: Toolchains,
        *,
        tolerance: float = 1e-3,
        preset: Preset = AT_ONCE,
        progress: Progress | None = None,
    ) -> None:
        self._toolchains = toolchains
        self._preset = preset
        self._progress = progress or SilentProgress()
        limits = Tolerance(relative=tolerance, mismatched=tolerance)
        settings = MeasureSettings(
            build=BuildSettings(threads=toolchains.threads, effort=preset.effort, max_variants=preset.max_variants),
            device_variants=preset.device_variants,
            protocol=preset.protocol,
            tolerance=limits,
            inexact_kernel_tolerance=limits,
            deadline_s=preset.deadline_s,
        )
        self._choices = SetupChoices(measuring=lambda threads: settings)

    def compile(self, model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Compiled:
        """Find a plan, build and check its kernels, and load them.

        Args:
            model: Any model.
            inputs: A value for each input: kernels are checked on them, and free dimensions take their shapes.

        Raises:
            CollageError: If the model cannot be used, nobody computes part of it, or no kernel is right.
        """
        shapes = {name: np.shape(inputs[name]) for name in sorted(free_inputs(model) & inputs.keys())}
        prepared = prepared_in(self._toolchains.pool.models, model, shapes, PREPARE_S)
        with blamed_on(prepared):
            workload = PreparedModel(DataflowGraph(prepared), inputs)
            return self._compiled(Environment(workload, self._toolchains, self._choices, self._progress))

    def _compiled(self, environment: Environment[PreparedModel]) -> Compiled:
        wrong: set[tuple[str, int]] = set()
        while True:
            assembled = self._assembled(environment, wrong)
            session = Session(
                Executable.build(
                    assembled.model,
                    assembled.artifacts,
                    assembled.targets,
                    loader(self._toolchains.registry),
                    threads=self._toolchains.threads,
                    host=self._toolchains.host,
                    providers=self._toolchains.providers,
                )
            )
            outputs, capture = session.run(None, environment.workload.inputs), environment.capture()
            suspects = _suspects(environment.graph, assembled, outputs, capture)
            if not suspects:
                return Compiled(session=session, assembled=assembled, unchecked=capture.unchecked)
            wrong |= suspects

    def _assembled(self, environment: Environment[PreparedModel], wrong: set[tuple[str, int]]) -> Assembled:
        # kernels of all targets share this process, so one that shares it with nobody takes no part
        rules = [rule for rule in usable_rules(environment.asked) if rule.target.mixable]
        first = [rule for rule in rules if rule.target.toolchain not in ON_REQUEST]
        if not rules:
            raise CollageError("no toolchain that can share a process with others is usable here")
        # what chance has a say in cannot be compared, so whoever needs no comparing computes it
        graph = environment.graph
        chance = 0 if len(first) == len(rules) else random_nodes(graph, graph.all_mask)
        impure = sum(1 << index for index in iterate_bits(chance) if not graph.pure[index])
        if first:
            with contextlib.suppress(NoCoverError):
                return self._best(environment, first, wrong, impure)
        return self._best(environment, rules, wrong, impure)

    def _best(
        self,
        environment: Environment[PreparedModel],
        rules: Sequence[TargetRule],
        wrong: set[tuple[str, int]],
        impure: int,
    ) -> Assembled:
        """Return the least-cost plan all of whose call sites can be built and are right.

        Args:
            environment: The model and the toolchains.
            rules: The targets that take part.
            wrong: Target and nodes of kernels not to use; grows by those that cannot be built.
            impure: Nodes for the toolchains that take part on request only.

        Raises:
            NoCoverError: If there is none.
        """
        aside = {rule.target.name for rule in rules if rule.target.toolchain in ON_REQUEST}

        def allow(chosen: SearchCandidate) -> bool:
            return (chosen.target, chosen.nodes) not in wrong and (chosen.target in aside or not chosen.nodes & impure)

        explored = self._explored(environment, rules)
        while True:
            try:
                plan = as_plan(explored.pool, "mixed", explored.pool.engine().run(allow), single=False)
            except NoCoverError as error:
                facts = refusals(explored.proposals.values(), pool=explored.pool)
                raise why_uncovered(error, environment.graph, facts, failures=explored.failures) from error
            try:
                return assemble(plan, environment.source, self._toolchains.store, self._progress)
            except PlanBuildError as error:
                # equal structure was right with other weights or values; with these it is not
                wrong.update(
                    (kernel.target.name, kernel.sub_graph.nodes)
                    for kernel in plan.kernels
                    if kernel.target.name == error.target and kernel.sub_graph.names == error.nodes
                )
                self._progress.message(str(error))

    def _explored(self, environment: Environment[PreparedModel], rules: Sequence[TargetRule]) -> Explored:
        setup = ExplorationSetup(
            rules=rules, source=environment.source, preset=self._preset, bounds=BOUNDS, progress=self._progress
        )
        try:
            return explore_exhaustively(setup, environment.pool)
        except UncoveredError as error:
            raise explained(error, environment.asked.failures) from error


def _suspects(
    graph: DataflowGraph, assembled: Assembled, outputs: Sequence[Any], capture: Capture
) -> set[tuple[str, int]]:
    """Return target and nodes of the kernels that contribute to an output with an inaccurate element.

    Kernels are compared by the scale of their tensors, which does not bound the relative error of an element near
    zero. Kernels of toolchains that take part on request only are correct by definition.
    """
    chance = random_values(graph)
    suspects: set[tuple[str, int]] = set()
    for value, actual in zip(graph.model.graph.outputs, outputs, strict=True):
        name, producer = str(value.name), graph.producer(value)
        if name in chance or producer is None or _is_close(actual, capture.value(name)):
            continue
        above = graph.ancestors[producer] | 1 << producer
        suspects.update(
            (kernel.target.name, kernel.sub_graph.nodes)
            for kernel in assembled.plan.kernels
            if kernel.sub_graph.nodes & above and kernel.target.toolchain not in ON_REQUEST
        )
    return suspects


def _is_close(actual: Any, expected: Any) -> bool:
    """Return whether every element is within the tolerance of `onnx.backend.test`."""
    if actual is None or expected is None:
        return actual is expected
    if isinstance(expected, list | tuple):
        return len(actual) == len(expected) and all(map(_is_close, actual, expected))
    actual, expected = np.asarray(actual), np.asarray(expected)
    if not is_floating(expected):
        return np.array_equal(actual, expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    return actual.shape == expected.shape and np.allclose(
        actual.astype(wide), expected.astype(wide), rtol=_RTOL, atol=_ATOL, equal_nan=True
    )
