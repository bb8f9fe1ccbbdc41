"""Plans that are not built, and contenders that do not run, for tests of what is timed end to end."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from collage.build.assemble import Assembled
from collage.decide.races import race
from collage.decide.races.end_to_end import EndToEndTimer
from collage.decide.races.saved_races import SavedRaces
from collage.devices.this_host import this_host
from collage.errors import PlanBuildError
from collage.measure.budget import UNLIMITED, Budget
from collage.measure.contenders.interleaved import Contender
from collage.measure.wire.messages import Burst
from collage.measure.wire.outcomes import Failed, Stage
from collage.options import PRESETS, Preset
from collage.report.progress import SilentProgress
from collage.store import TuningStore
from collage_core.candidates.plan import Plan
from collage_core.contract import Host, Target
from collage_core.fusion import Partitioning
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing import chain
from tests.engine.exploring import a_target, kernel

GRAPH = DataflowGraph(chain("Relu", "Exp"))


def plan_of(name: str, *targets: Target, single: bool = True) -> Plan:
    """The whole graph as one kernel, or a kernel of one node for each target."""
    kernels = (
        (kernel(GRAPH, targets[0]),)
        if len(targets) == 1
        else tuple(kernel(GRAPH, target, node) for target, node in zip(targets, GRAPH.names, strict=True))
    )
    return Plan(
        name=name,
        single=single,
        partitioning=Partitioning(GRAPH, kernels),
        costs_us=(1.0,) * len(kernels),
        dispatch_us=0.0,
    )


A, B, C = (a_target(name) for name in "abc")
FAST, MIDDLE, SLOW = plan_of("a", A), plan_of("b", B), plan_of("c", C)
MIXED = plan_of("mixed-1", A, B, single=False)


@dataclasses.dataclass
class Saved:
    """Stands for an assembled plan."""

    saved: list[str]

    def save(self, path: Path, record: None, *, threads: int, model_name: str, model_sha256: str) -> None:
        path.write_bytes(b"")
        self.saved.append(model_name)


class Track:
    """Where contenders run: times them by what it was told, and notes who ran.

    Args:
        times_us: Time by plan.
        crashes: Plans that fail, and in which heat.
    """

    def __init__(self, times_us: Sequence[tuple[Plan, float]], crashes: Mapping[str, int] | None = None) -> None:
        self._times_us = {plan.key: time_us for plan, time_us in times_us}
        self._names = {plan.key: plan.name for plan, _ in times_us}
        self._crashes = crashes or {}
        self.runs: list[list[str]] = []
        self.rounds: list[int] = []
        self.first_rounds: list[int] = []
        self.inputs: list[int] = []

    def interleaved(
        self,
        contenders: Sequence[Contender],
        *,
        rounds: int,
        first_round: int = 0,
        on_burst: Any = None,
        in_parts: bool = False,
        **_: Any,
    ) -> dict[str, Any]:
        for contender in [*contenders] * rounds:
            time_us = self._times_us[contender.name]
            parts_us = {"k0000": time_us / 2, "k0001": time_us / 2} if in_parts else {}
            burst = Burst(samples_us=(1.0,), called_us=(time_us + 1,) * 2, parts_us=parts_us, calibration_us=1.0)
            on_burst(contender.name, burst)
        self.runs.append([self._names[contender.name] for contender in contenders])
        self.rounds.append(rounds)
        self.inputs.append(len(cast(Sequence[str], contenders[0].arguments["inputs"])) if contenders else 0)
        self.first_rounds.append(first_round)
        return {contender.name: self._answer(contender, rounds) for contender in contenders}

    def _answer(self, contender: Contender, rounds: int) -> Any:
        if self._crashes.get(self._names[contender.name]) == len(self.runs):
            return Failed(stage=Stage.RUN, reason="crash: signal 11")
        return ((self._times_us[contender.name],) * 3,) * rounds


@dataclasses.dataclass
class Bench:
    """A refiner over a track."""

    timer: EndToEndTimer
    saved: list[str]
    tried: list[str]


def timer(
    database: TuningStore,
    folder: Path,
    *,
    model_key: str = "m",
    unbuildable: str = "",
    threads: int = 1,
    tolerance: float = 1e-3,
    host: Host | None = None,
    plugins: Mapping[str, str] | None = None,
    retry_failed: bool = False,
    budget: Budget = UNLIMITED,
    variants: Mapping[str, str] | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
    preset: Preset = PRESETS["quick"],
) -> Bench:
    saved: list[str] = []
    tried: list[str] = []
    folder.mkdir(exist_ok=True)

    def build(plan: Plan) -> Assembled:
        tried.append(plan.name)
        if plan.name == unbuildable:
            raise PlanBuildError("a", ("relu_0",), "out of memory")
        return cast(Assembled, Saved(saved))

    return Bench(
        EndToEndTimer(
            saved=SavedRaces(
                database=database,
                model=f"sha256 of {model_key}",
                model_key=model_key,
                host=host or this_host(),
                threads=threads,
                tolerance=tolerance,
                preset=preset,
                plugins=plugins or {},
                variant=lambda kernel: (variants or {}).get(kernel.target.name),
                sizes=sizes,
            ),
            folder=folder,
            inputs=lambda: [folder / f"inputs-{number}.json" for number in range(max(1, len(sizes)))],
            build=build,
            progress=SilentProgress(),
            retry_failed=retry_failed,
            budget=budget,
        ),
        saved,
        tried,
    )


def on(monkeypatch: pytest.MonkeyPatch, track: Track) -> Track:
    monkeypatch.setattr(race, "interleaved", track.interleaved)
    return track
