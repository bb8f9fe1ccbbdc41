"""Everything one run works with: a workload, the toolchains at work, and what is known of their costs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Generic, TypeVar

from collage.measure.driver.capture import Capture
from collage.measure.driver.source import MeasuringCostSource
from collage.prepare.validity import blamed_on
from collage.reference import Fallback
from collage.report.progress import Progress, SilentProgress
from collage.setup.empty_pool import empty_pool
from collage.setup.prepared_model import Runnable, capture_of
from collage.setup.queries import Asked, ask_targets
from collage.setup.reference_fallback import reference_fallback
from collage.setup.settings import SetupChoices
from collage.setup.toolchains import Toolchains, selected
from collage.store import ModelKernels
from collage_core.candidates.pool import CandidatePool
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Registry

W_co = TypeVar("W_co", bound=Runnable, covariant=True)


class Environment(Generic[W_co]):
    """One workload over toolchains at work. Whatever takes time is made when first asked for.

    Args:
        workload: The model.
        toolchains: Those at work; they stay the caller's to close.
        choices: How to measure, and what computes what the reference cannot.
        progress: Receives progress updates.

    Attributes:
        workload: The model.
        toolchains: Those at work.
        budget: Time that is left of the run.
    """

    def __init__(
        self, workload: W_co, toolchains: Toolchains, choices: SetupChoices, progress: Progress | None = None
    ) -> None:
        self.workload = workload
        self.toolchains = toolchains
        self.budget = toolchains.budget
        self._choices = choices
        self._progress = progress or SilentProgress()

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        workload: Callable[[], W_co],
        choices: SetupChoices,
        *,
        registry: Registry | None = None,
        progress: Progress | None = None,
    ) -> Iterator[Environment[W_co]]:
        """Read a workload, start the toolchains, and end them when the context is left.

        Args:
            workload: Reads the model; called once it is known that everything that is named is there.
            choices: Who takes part, and how to measure.
            registry: The toolchains; those installed if None.
            progress: Receives progress updates.

        Raises:
            UsageError: If a named toolchain or target does not exist; said before the model is read.
            CollageError: If the model or the database cannot be used.
        """
        registry, progress = registry or Registry.discover(), progress or SilentProgress()
        selected(choices, registry)
        progress.phase("preparing the model")
        model = workload()
        progress.phase("asking toolchains")
        with Toolchains(choices, registry=registry) as toolchains, blamed_on(model.graph.model):
            for sentence in (*toolchains.missed, *(toolchains.fleet.notes if toolchains.fleet else ())):
                progress.message(sentence)
            yield cls(model, toolchains, choices, progress)

    @property
    def graph(self) -> DataflowGraph:
        """The prepared model's graph."""
        return self.workload.graph

    @cached_property
    def asked(self) -> Asked:
        """Each target that takes part, with its rule and what its library refuses of the model."""
        return ask_targets(self.graph, self.toolchains, self._progress, self.workload.sha256)

    @cached_property
    def fallback(self) -> Fallback | None:
        """Computes what the reference cannot; None if no target does.

        Raises:
            UsageError: If what `--reference` names does not compute in the model's own dtypes.
        """
        return reference_fallback(self.toolchains, self.graph, self._choices.reference)

    @cached_property
    def capture(self) -> Callable[[], Capture]:
        """Takes every value of one reference run when first called, and remembers it.

        Raises:
            DiskSpaceError: When called, if the values do not fit on the disk of temporary files.
        """
        toolchains = self.toolchains
        models, budget = toolchains.pool.models, self.budget.exploring
        return capture_of(self.workload, toolchains.store, models, self.fallback, budget)

    @cached_property
    def source(self) -> MeasuringCostSource:
        """Costs by measuring, kept in the tuning database."""
        return MeasuringCostSource(
            pool=self.toolchains.pool,
            capture=self.capture,
            database=self.toolchains.database,
            host=self.toolchains.host,
            settings=self._choices.measuring(self.toolchains.threads),
            measurer=None if self.toolchains.fleet is None else self.toolchains.fleet.measurer,
            warm=self.toolchains.warm_devices(self.graph.weights_bytes),
            kernels=ModelKernels(self.toolchains.database, self.workload.sha256),
            plugins=self.toolchains.plugins,
            retry_failed=self.toolchains.retry_failed,
        )

    @cached_property
    def pool(self) -> CandidatePool:
        """A pool without candidates: what candidates, dispatch and copies cost."""
        toolchains = self.toolchains
        return empty_pool(self.graph, self.source, toolchains.database, toolchains.host, toolchains.copy_costs())
