"""A machine as a store knows it: costs of kernels, dispatch and copies, and races."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.resolve.recorded_source import RecordedSource
from collage.resolve.saved_takes import SavedTake
from collage.setup.copy_costs import host_copies
from collage.setup.device_figures import device_figures, warm_devices
from collage.setup.empty_pool import empty_pool_elsewhere
from collage.setup.prepared_model import capture_of
from collage.setup.settings import SetupChoices
from collage.setup.workload import Workload
from collage.store import TuningStore
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Host, Unsupported


class NotHere:
    """See `DeviceMeter`: the devices are elsewhere."""

    def times(self, device: str) -> Unsupported:
        """Return that they are."""
        return Unsupported(f"{device} was not measured on that machine")


class Elsewhere:
    """What a store knows of a machine, for one model and some targets.

    Args:
        store: The store.
        host: The machine.
        takes: What targets take of the model.
        workload: The model.
        choices: Threads, and how candidates were measured.
        workers: None: there is nobody to measure or build.

    Attributes:
        threads: CPU threads of every kernel.
        source: Costs of kernels.
        pool: A pool without candidates: what candidates, dispatch and copies cost.

    Raises:
        UsageError: If the store does not know what dispatch costs there.
    """

    def __init__(
        self,
        store: TuningStore,
        host: Host,
        takes: Sequence[SavedTake],
        workload: Workload,
        choices: SetupChoices,
        workers: WorkerPool,
    ) -> None:
        self._figures = device_figures(store, host, {take.target.device for take in takes}, NotHere())
        self.host = host
        self.threads = choices.threads or host.physical_cores
        self.plugins: Mapping[str, str] = {take.target.toolchain: take.plugin for take in takes}
        self.source = RecordedSource(
            pool=workers,
            capture=capture_of(workload, workers.store, workers.models, None, choices.budget.exploring),
            database=store,
            host=host,
            settings=choices.measuring(self.threads),
            warm=warm_devices(self._figures, workload.graph.weights_bytes),
            plugins=self.plugins,
        )
        copies = host_copies(self._figures, [take.target for take in takes])
        self.pool = empty_pool_elsewhere(workload.graph, self.source, store, host, copies)

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        store: TuningStore,
        host: Host,
        takes: Sequence[SavedTake],
        workload: Workload,
        choices: SetupChoices,
    ) -> Iterator[Elsewhere]:
        """Open a machine; its files are removed when the context is left. See the class for arguments and errors."""
        with TemporaryFolder() as folder, WorkerPool((), BlobStore(Path(folder) / "blobs")) as workers:
            yield cls(store, host, takes, workload, choices, workers)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is assumed of devices, a sentence each."""
        return tuple(figures.said for figures in self._figures if figures.said)
