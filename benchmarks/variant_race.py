"""Race several toolchains on one layer: the variants Collage chooses against the libraries' first choices.

The choice is made by the code a search uses: `measure.trials`, which checks each variant against the
correct result and times it as a plan would run it. Choosing among noisy numbers favours the chosen one, so
both the choice and the variant that the library itself put first are timed again, with those of all other
toolchains, each in every round.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.judge.statistics import Interval, median_interval
from benchmarks.variant_shapes import Layer
from collage.devices.opening import Devices
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.function_codec import FunctionEncoder
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import BuildSettings, Measured, Tolerance
from collage.measure.wire.values import encode_value
from collage.measure.worker.failing import Stopped
from collage.measure.worker.lowering import KeptArtifacts
from collage.measure.worker.trial import Trial
from collage.measure.worker.trials import Trials
from collage_core.candidates.proposals import propose, target_rule
from collage_core.contract import Artifact, Host, Measurement, Protocol, Target
from collage_core.fusion import CandidateBounds, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing.kit.contexts import MemoryBlobs

TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 4e-2}
"""Tolerances relative to the result's scale: float32 as in a search, 16-bit floats by their rounding."""
WORSE = 1.01
"""A choice is worse than the library's if the lower bound of the interval of their ratio is above this."""
TURN = Protocol(warmup_runs=1, warmup_s=0.0, min_samples=3, max_samples=3, duration_s=0.0)

Clock: TypeAlias = Callable[[], Measurement]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A toolchain that takes part.

    Attributes:
        toolchain: It.
        target: Its plain target on the device.
        host: The machine it builds for.
        cache: What it keeps between layers, such as compiled kernels.
    """

    toolchain: Toolchain
    target: Target
    host: Host
    cache: MemoryBlobs = dataclasses.field(default_factory=MemoryBlobs)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Effort spent on a layer.

    Attributes:
        variants: Number of variants tried per toolchain, including the library's first choice.
        effort: As `BuildContext.effort`.
        protocol: Timing protocol for choosing a variant.
        turn: Timing protocol of one contender in one round; the median of its samples counts.
        rounds: Rounds of the race.
        deadline_s: Longest time that one toolchain may take to choose, in seconds; half of it is for making variants.
        seed: Seed of the order within rounds.
    """

    variants: int
    effort: int
    protocol: Protocol
    turn: Protocol = TURN
    rounds: int = 40
    deadline_s: float = 1200.0
    seed: int = 0


@dataclasses.dataclass(slots=True)
class _Choice:
    """Choice of one toolchain; fields that a failure leaves empty are ignored."""

    entry: Entry
    ask: AskMeasure | None = None
    tried: int = 0
    first: str = ""
    chosen: str = ""
    failed: str = ""
    clocks: dict[str, Clock] = dataclasses.field(default_factory=dict)
    rounds_us: dict[str, list[float]] = dataclasses.field(default_factory=dict)


def raced(layer: Layer, dtype: str, entries: Sequence[Entry], devices: Devices, effort: Effort) -> list[dict[str, Any]]:
    """Let each toolchain choose a variant, and time the first and chosen variants in turns.

    Args:
        layer: Layer to race.
        dtype: Data type of the layer.
        entries: Toolchains that take part, with their targets.
        devices: Opened for all of them: one stream, as in a plan.
        effort: Amount of work for each.

    Returns:
        For each toolchain its name and either `failed`, the reason; or the names of the `first` and the `chosen`
        variant, how many were `tried`, the `median_us` and its `ci95` of both, the `ratio` of chosen to first with
        its `ci95`, and `rounds_us`.
    """
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_trials:
        store = BlobStore(Path(folder) / "blobs")
        choices = [_chosen(layer, dtype, entry, devices, effort, store, Path(folder)) for entry in entries]
        for choice in choices:
            if not choice.failed:
                _made_ready(choice, effort.turn, devices, store, Path(folder), open_trials)
        turns = [
            (choice.rounds_us.setdefault(variant, []), clock)
            for choice in choices
            for variant, clock in choice.clocks.items()
            if not choice.failed
        ]
        order = random.Random(effort.seed)
        for _ in range(effort.rounds):
            order.shuffle(turns)
            for times, clock in turns:
                times.append(clock().median_us)
        return [_row(choice) for choice in choices]


def whole_of(layer: Layer, entry: Entry) -> SubGraph | str:
    """Return the layer as one candidate of a toolchain, as a search has it; or why there is none."""
    graph = DataflowGraph(layer.model)
    found = propose(target_rule(entry.toolchain, entry.target, {}), graph, CandidateBounds.preset("quick"))
    wholes = [each.sub_graph for each in found.candidates if each.sub_graph.nodes == graph.all_mask]
    if wholes:
        return wholes[0]
    reasons = [f"{graph.nodes[index].op_type}: {reason}" for index, reason in sorted(found.refusals.items())]
    return "; ".join(reasons) or "it takes the layer's parts, not the whole as one kernel"


def _chosen(
    layer: Layer, dtype: str, entry: Entry, devices: Devices, effort: Effort, store: BlobStore, folder: Path
) -> _Choice:
    choice, whole = _Choice(entry=entry), whole_of(layer, entry)
    if isinstance(whole, str):
        choice.failed = whole
        return choice
    tolerance = TOLERANCES[dtype]
    ask = AskMeasure(
        target=entry.target,
        function=FunctionEncoder(store).encode(kernel_function(whole, "layer")),
        inputs=(encode_value(layer.read, store),),
        expected=(encode_value(layer.right, store),),
        build=BuildSettings(threads=1, effort=effort.effort, max_variants=effort.variants),
        protocol=effort.protocol,
        tolerance=Tolerance(relative=tolerance, mismatched=tolerance),
        deadline_s=effort.deadline_s,
        cold=False,
    )
    choice.ask = ask
    seen: list[str] = []

    def note(progress: Any) -> None:
        if progress.variant and progress.variant not in seen:
            seen.append(progress.variant)

    trials = Trials(entry.toolchain, store, folder, lambda target: entry.cache, note, host=entry.host, devices=devices)
    found = trials.measure(ask)
    if isinstance(found, Measured):
        choice.first, choice.chosen, choice.tried = seen[0], found.variant, len(seen)
    else:
        choice.failed = found.reason
    return choice


def _made_ready(
    choice: _Choice, turn: Protocol, devices: Devices, store: BlobStore, folder: Path, open_trials: contextlib.ExitStack
) -> None:
    """Load both variants for the race; record the reason if the first choice does not run."""
    entry, ask = choice.entry, choice.ask
    assert ask is not None
    nothing_kept = KeptArtifacts(memory_bytes=0)
    for variant in dict.fromkeys((choice.first, choice.chosen)):
        trial = open_trials.enter_context(
            Trial(entry.toolchain, store, folder, entry.cache, _ignore, ask, entry.host, devices, _ignore, nothing_kept)
        )
        artifact: Artifact | None = next(trial.variants(ask.build.max_variants, variant), None)
        if artifact is None:
            choice.failed = f"its variant {variant} cannot be made again: {trial.why_none().reason}"
            return
        try:
            bound = trial.bind(artifact)
            trial.check(bound, ask)
        except Stopped as stopped:
            choice.failed = f"its first choice {variant} does not run ({stopped.outcome.reason}); it has another"
            return
        # turns are paired by round
        clock = trial.clock(bound, artifact, dataclasses.replace(ask, protocol=turn, cold=False), observed=False)
        choice.clocks[variant] = functools.partial(entry.toolchain.measure, ask.target, bound.call, turn, clock)


def _ignore(said: object) -> None:
    """Ignore the message; errors appear in the outcome."""


def _row(choice: _Choice) -> dict[str, Any]:
    row: dict[str, Any] = {"toolchain": choice.entry.toolchain.name, "target": choice.entry.target.name}
    if choice.failed:
        return row | {"failed": choice.failed}
    first, chosen = choice.rounds_us[choice.first], choice.rounds_us[choice.chosen]
    ratio = median_interval([mine / other for mine, other in zip(chosen, first, strict=True)])
    return row | {
        "first": choice.first,
        "chosen": choice.chosen,
        "tried": choice.tried,
        "median_us": {name: float(np.median(times)) for name, times in (("first", first), ("chosen", chosen))},
        "ci95_us": {name: _ends(median_interval(times)) for name, times in (("first", first), ("chosen", chosen))},
        "ratio": ratio.value,
        "ci95": _ends(ratio),
        "rounds_us": {"first": first, "chosen": chosen},
    }


def _ends(interval: Interval) -> list[float]:
    return [interval.low, interval.high]


def verdict(row: Mapping[str, Any]) -> str:
    """Classify the choice: `better`, `worse`, `same` variant, or `no different`; empty if it did not run."""
    if "failed" in row:
        return ""
    if row["first"] == row["chosen"]:
        return "same"
    low, high = row["ci95"]
    return "better" if high < 1 else "worse" if low > WORSE else "no different"
