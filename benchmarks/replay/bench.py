"""A model with its toolchains, over which searches are replayed."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.replay.source import LongRunCosts
from collage.build.assemble import assemble
from collage.control.choices import UserChoices
from collage.control.tie_breaking import TieBreaking
from collage.decide.shortlist import shortlist
from collage.explore.by_options import explore
from collage.explore.exploration import Explored
from collage.measure.driver.source import MeasuringCostSource
from collage.options import OptimizeOptions
from collage.report.progress import Progress, SilentProgress
from collage.runtime.package import TrustedPackages
from collage.setup.environment import Environment
from collage.setup.queries import usable_rules
from collage.setup.settings import SetupChoices, measure_settings
from collage.setup.toolchains import Toolchains
from collage.setup.workload import Workload
from collage.store import TuningStore
from collage.store.memory import MemoryStore
from collage_core.candidates.costs import Costs, KnownCosts
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.candidates.proposals import TargetRule
from collage_core.contract import Host


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What measurements are of, besides toolchains.

    Attributes:
        host: The machine.
        dispatch_us: What the runtime's loop adds there to each kernel, in microseconds.
        timing: How samples were taken, if that was before the present way; it counts for the present one in replays.
    """

    host: Host
    dispatch_us: float
    timing: str | None = None


class Bench:
    """One model with its toolchains; leaving the context ends them.

    Args:
        path: The ONNX file; inputs are taken from the `.inputs.npz` beside it, if there is one.
        measured: How all candidates are measured, whichever search asks for them.
        work: Folder for caches of the toolchains.
        progress: Receives progress updates.
        machine: The machine whose measurements are replayed; this one if None.

    Attributes:
        path: The ONNX file.
        workload: The model.
        place: The toolchains.
        progress: As given.
    """

    def __init__(
        self,
        path: Path,
        measured: OptimizeOptions,
        work: Path,
        progress: Progress,
        *,
        machine: Machine | None = None,
    ) -> None:
        self.path = path
        self.progress = progress
        inputs = path.with_suffix(".inputs.npz")
        self.workload = Workload(path, inputs=inputs if inputs.is_file() else None)
        options = dataclasses.replace(measured, tuning_db=str(work / "caches.sqlite"))
        self._choices = SetupChoices.of(options)
        self.place = Toolchains(self._choices)
        self._opened = Environment(self.workload, self.place, self._choices, progress)
        self._machine = machine
        self._settings = measure_settings(measured, self.place.threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.place.close()

    @property
    def options(self) -> dict[str, Any]:
        """What a cost source is made of, besides its database."""
        opened = self._opened
        return {
            "pool": self.place.pool,
            "capture": opened.capture,
            "host": self.machine.host,
            "settings": self._settings,
        }

    @property
    def timing(self) -> str | None:
        """How samples were taken that are replayed, if that was before the present way."""
        return None if self._machine is None else self._machine.timing

    @cached_property
    def rules(self) -> tuple[TargetRule, ...]:
        """The targets with their rules."""
        return tuple(usable_rules(self._opened.asked))

    @cached_property
    def machine(self) -> Machine:
        """The machine whose measurements are replayed."""
        return self._machine or Machine(host=self.place.host, dispatch_us=self._opened.pool.dispatch_us)

    def source(self, database: TuningStore) -> MeasuringCostSource:
        """Return what measures into a database."""
        return MeasuringCostSource(database=database, **self.options)

    def explored(
        self, options: OptimizeOptions, source: MeasuringCostSource, progress: Progress | None = None
    ) -> tuple[Explored, list[Plan]]:
        """Explore as `optimize` does.

        Args:
            options: Preset and search.
            source: Answers what the search asks for.
            progress: Receives progress updates, where the search is not a replay.

        Returns:
            What was found, and the plans that would be timed end to end.
        """
        environment = Environment(self.workload, self.place, self._choices, SilentProgress())
        environment.asked = self._opened.asked
        environment.capture = self._opened.capture
        environment.source = source
        environment.pool = self._pool(source)
        targets = self.place.targets()
        choices = UserChoices.read(options).over(self.workload.graph, targets)
        rules = choices.rules(self.rules)
        explored = explore(
            source,
            environment.pool,
            rules,
            options,
            choices.pins,
            environment.asked.failures,
            progress or SilentProgress(),
            environment.budget.exploring,
        )
        plans, _ = shortlist(explored.pool, targets, options.effective.challengers, source, TieBreaking())
        return explored, plans

    def long_run_pool(self, database: TuningStore) -> CandidatePool:
        """Return a pool without candidates, with costs by everything that a database knows."""
        settings, host = self._settings, self.machine.host
        costs = LongRunCosts(self.timing, capture=self._opened.capture, database=database, host=host, settings=settings)
        return self._pool(costs)

    def _pool(self, costs: KnownCosts) -> CandidatePool:
        return CandidatePool(self.workload.graph, Costs(costs), self.machine.dispatch_us, self.place.copy_costs())

    def save(self, plan: Plan, package: Path) -> None:
        """Build a plan and save it as a package that may be loaded here.

        Raises:
            CollageError: If it cannot be built.
        """
        assembled = assemble(plan, self.source(MemoryStore()), self.place.store, self.progress)
        digest = assembled.save(package, None, threads=self.place.threads, model_name=plan.name, model_sha256="")
        TrustedPackages().add(digest, package, "written")
