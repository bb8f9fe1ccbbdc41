"""The workers of a run: one per toolchain, ended together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from collage.measure.driver.client import PluginSource, Worker
from collage.measure.models.model_process import ModelProcess
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Outcome
from collage.store import BlobSpace, StoredBlobs, TuningStore
from collage_core.contract import BlobCache, Target


class WorkerPool:
    """One worker per toolchain, each started on first use; leaving the context kills them.

    Args:
        sources: The toolchains.
        store: Blobs they share with the driver.
        cache: See `Worker`.

    Attributes:
        store: As given.
        models: Prepares and evaluates models.
    """

    def __init__(
        self,
        sources: Iterable[PluginSource],
        store: BlobStore,
        *,
        cache: Callable[[Target], BlobCache] | None = None,
    ) -> None:
        self.store = store
        self.models = ModelProcess()
        self._workers = {source.toolchain: Worker(source, store, cache=cache) for source in sources}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def toolchains(self) -> tuple[str, ...]:
        """Names of the toolchains."""
        return tuple(self._workers)

    def worker(self, toolchain: str) -> Worker:
        """Return the worker of a toolchain, running or not.

        Raises:
            KeyError: If the pool has no such toolchain.
        """
        return self._workers[toolchain]

    @property
    def width(self) -> int:
        """See `Measurer`: one, because kernels that run beside each other slow each other."""
        return 1

    @property
    def is_here(self) -> bool:
        """See `Measurer`."""
        return True

    def measure(self, ask: AskMeasure) -> Outcome:
        """See `Measurer`.

        Raises:
            KeyError: If the pool has no such toolchain.
        """
        return self._workers[ask.target.toolchain].measure(ask)

    def begin(self, toolchains: Iterable[str]) -> None:
        """Start the workers of some toolchains without waiting for them.

        Raises:
            KeyError: If the pool has no toolchain of a given name.
        """
        for name in toolchains:
            self._workers[name].begin()

    def libraries(self) -> dict[str, tuple[str, ...]]:
        """Return the libraries each worker has loaded, by toolchain; empty if its targets were not obtained."""
        return {name: worker.libraries for name, worker in self._workers.items()}

    def close(self) -> None:
        """Kill all workers, and the process of models."""
        with contextlib.ExitStack() as stack:
            stack.callback(self.models.close)
            for worker in self._workers.values():
                stack.callback(worker.close)


def database_cache(database: TuningStore) -> Callable[[Target], StoredBlobs]:
    """Return blob caches for a `WorkerPool`, kept in a tuning database by toolchain and fingerprint."""
    return lambda target: StoredBlobs(database, BlobSpace(toolchain=target.toolchain, fingerprint=target.fingerprint))
