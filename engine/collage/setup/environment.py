"""What every command that touches toolchains shares: their workers, a scratch folder, the tuning database."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import onnx_ir

from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.measure.driver.capture import worker_fallback
from collage.measure.driver.client import PluginSource
from collage.measure.driver.source import database_cache
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.reference import Fallback
from collage.setup.copy_costs import HostCopies
from collage.setup.device_figures import DeviceFigures, DeviceMeter, WorkerMeter, device_figures, warm_devices
from collage.setup.library_clashes import kept_apart, loaded_clashes
from collage.setup.targets import Selection, ToolchainStatus, selected_targets, statuses
from collage.store import TuningStore, open_database
from collage_core.contract import Target
from collage_core.errors import EvaluationError, UsageError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Registry

_EVALUATE_DEADLINE_S = 120.0


class Environment:
    """Toolchains at work; leaving the context kills their workers and removes the scratch folder.

    Args:
        selection: Which targets take part.
        tuning_db: URL of the tuning database; the user's own if None.
        threads: CPU threads; one per physical core if None.
        registry: The toolchains; those installed if None.
        meter: Measures what devices take for copies and launches; the workers if None.

    Attributes:
        providers: Who provides its devices.
        host: This machine.
        threads: CPU threads of every kernel.
        registry: The toolchains.
        folder: For files of this run.
        store: Bytes shared with workers.
        database: What is known already.
        pool: The workers.
        statuses: Each wanted toolchain and its targets.
        clashes: Libraries of those that take part which cannot be in one process; their targets exclude each other.

    Raises:
        UsageError: If a named toolchain or target does not exist.
        DatabaseError: If the database cannot be used.
    """

    def __init__(
        self,
        selection: Selection,
        *,
        tuning_db: str | None = None,
        threads: int | None = None,
        registry: Registry | None = None,
        meter: DeviceMeter | None = None,
    ) -> None:
        self.registry = registry or Registry.discover()
        self.providers = Providers.discover()
        self.host = this_host(self.providers)
        self._meter = meter
        self.threads = threads or self.host.physical_cores
        names = selection.toolchains(self.registry)
        with contextlib.ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="collage-")))
            self.store = BlobStore(self.folder / "blobs")
            self.database: TuningStore = stack.enter_context(open_database(tuning_db))
            sources = [PluginSource(toolchain=name) for name in names]
            self.pool = stack.enter_context(WorkerPool(sources, self.store, cache=database_cache(self.database)))
            found = statuses(self.registry, self.pool, self.host, selection)
            loaded = self.pool.libraries()
            taking_part = {status.toolchain.name for status in found if status.selected}
            self.clashes = loaded_clashes({name: loaded[name] for name in taking_part}, self.providers.libraries)
            self.statuses: tuple[ToolchainStatus, ...] = kept_apart(found, self.clashes)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def targets(self) -> tuple[Target, ...]:
        """The targets that take part.

        Raises:
            UsageError: If there is none.
        """
        return selected_targets(self.statuses)

    @cached_property
    def device_figures(self) -> tuple[DeviceFigures, ...]:
        """What the devices of the targets take for copies and launches, measured when first asked for."""
        targets = [target for status in self.statuses for target in status.selected]
        meter = self._meter or WorkerMeter(self.pool, targets)
        return device_figures(self.database, self.host, {target.device for target in targets}, meter)

    def copy_costs(self) -> HostCopies | None:
        """What copies between the devices of the targets cost; None if there is no device but the CPU."""
        targets = [target for status in self.statuses for target in status.selected]
        graphs = {target.device for target in targets if target.launch == "graph"}
        figures = self.device_figures
        return HostCopies.of(figures, {each.device for each in figures} - graphs) if figures else None

    def warm_devices(self, graph: DataflowGraph) -> frozenset[str]:
        """Devices whose caches hold all of a model's weights, so that each run finds those that the last one read.

        Args:
            graph: The prepared model's graph.
        """
        constants = [value.const_value for value in graph.model.graph.initializers.values()]
        sizes = {id(tensor): tensor.nbytes for tensor in constants if tensor is not None}
        return warm_devices(self.device_figures, sum(sizes.values()))

    def fallback(self, graph: DataflowGraph, wanted: str | None) -> Fallback | None:
        """Has a toolchain compute what the reference cannot.

        Args:
            graph: The prepared model's graph.
            wanted: A toolchain or target; if None, those that compute in the model's own dtypes, each where those
                before it fail.

        Returns:
            None if nobody was wanted and nobody computes in the model's own dtypes.

        Raises:
            UsageError: If there is none of that name.
        """
        exact = [target for target in self.targets() if target.exact]
        chosen = [target for target in exact if wanted in (None, target.toolchain, target.name)]
        if not chosen and wanted is not None:
            names = ", ".join(target.name for target in exact) or "none"
            raise UsageError(f"--reference {wanted}: choose a target that computes in the model's own dtypes: {names}")
        each = [
            worker_fallback(
                self.pool.worker(target.toolchain),
                graph,
                self.host,
                self.store,
                threads=self.threads,
                deadline_s=_EVALUATE_DEADLINE_S,
                target=target,
            )
            for target in (chosen if wanted is None else chosen[:1])
        ]
        return _first_able(each) if each else None


def _first_able(fallbacks: Sequence[Fallback]) -> Fallback:
    """Asks one after the other; a toolchain that fails costs time, not the reference."""

    def compute(model: onnx_ir.Model, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        reasons: list[str] = []
        for fallback in fallbacks:
            try:
                return fallback(model.clone(), inputs)
            except EvaluationError as error:
                reasons.append(error.reason)
        node = model.graph[0]
        raise EvaluationError(str(node.name), node.op_type, "; ".join(reasons))

    return compute
