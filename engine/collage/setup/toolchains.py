"""Toolchains at work: their workers, a scratch folder, the tuning database."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from types import TracebackType
from typing import Self

from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.fleet.fleet import Fleet
from collage.measure.driver.client import PluginSource
from collage.measure.driver.worker_pool import WorkerPool, database_cache
from collage.measure.wire.blobs import BlobStore
from collage.setup.copy_costs import HostCopies, host_copies
from collage.setup.device_figures import DeviceFigures, WorkerMeter, device_figures, warm_devices
from collage.setup.library_clashes import kept_apart, loaded_clashes
from collage.setup.settings import SetupChoices
from collage.setup.targets import (
    Selection,
    ToolchainStatus,
    check_reference,
    named_but_unusable,
    selected_targets,
    statuses,
)
from collage.store import open_database
from collage.temporary_folders import TemporaryFolder, sweep
from collage_core.contract import Target
from collage_core.registry import Registry


class Toolchains:
    """Toolchains at work; leaving the context kills their workers and removes the scratch folder.

    Args:
        choices: Which targets take part, and where outcomes are kept.
        registry: The toolchains; those installed if None.

    Attributes:
        providers: Provide the devices of the machine.
        host: This machine.
        threads: CPU threads of every kernel.
        retry_failed: Whether to try again what the database remembers as failed.
        budget: Time that is left of the run.
        registry: The toolchains.
        folder: For files of this run.
        store: Bytes shared with workers.
        database: What is known already.
        pool: The workers, and the process that evaluates the model.
        statuses: Each wanted toolchain and its targets.
        missed: A sentence for each toolchain that was named and has no usable target here.
        fleet: Machines that measure for this one; None where this one does.
        clashes: Libraries of those that take part which cannot be in one process; their targets exclude each other.

    Raises:
        UsageError: If a named toolchain or target does not exist.
        RunnerError: If the runner cannot be used.
        DatabaseError: If the database cannot be used.
    """

    def __init__(self, choices: SetupChoices, *, registry: Registry | None = None) -> None:
        self.registry = registry or Registry.discover()
        selection = selected(choices, self.registry)
        self.providers = Providers.discover()
        self.host = this_host(self.providers)
        self.threads = choices.threads or self.host.physical_cores
        self.retry_failed = choices.retry_failed
        self.budget = choices.budget
        with contextlib.ExitStack() as stack:
            sweep()
            self.folder = stack.enter_context(TemporaryFolder())
            self.store = BlobStore(self.folder / "blobs")
            self.database = stack.enter_context(open_database(choices.tuning_db))
            sources = [PluginSource(toolchain=name) for name in selection.toolchains(self.registry)]
            self.pool = stack.enter_context(WorkerPool(sources, self.store, cache=database_cache(self.database)))
            found = statuses(self.registry, self.pool, self.host, selection)
            self.missed = named_but_unusable(found, selection)
            loaded = self.pool.libraries()
            taking_part = {status.toolchain.name for status in found if status.selected}
            self.clashes = loaded_clashes({name: loaded[name] for name in taking_part}, self.providers.libraries)
            self.statuses: tuple[ToolchainStatus, ...] = kept_apart(found, self.clashes)
            self.fleet = None if choices.runner is None else stack.enter_context(self._fleet(choices))
            self._stack = stack.pop_all()

    def _fleet(self, choices: SetupChoices) -> contextlib.AbstractContextManager[Fleet]:
        return Fleet.open(
            choices.runner or "",
            host=self.host,
            threads=self.threads,
            targets=self.targets(),
            plugins=self.plugins,
            store=self.store,
            split=choices.split_hosts,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill the workers and remove the scratch folder."""
        self._stack.close()

    def targets(self) -> tuple[Target, ...]:
        """Return the targets that take part.

        Raises:
            UsageError: If there is none.
        """
        return selected_targets(self.statuses)

    @cached_property
    def plugins(self) -> Mapping[str, str]:
        """Version of the plugin of each toolchain that was asked for targets, by name."""
        return {status.toolchain.name: status.plugin for status in self.statuses}

    @cached_property
    def device_figures(self) -> tuple[DeviceFigures, ...]:
        """Copy and launch costs of the targets' devices, measured on first access."""
        targets = [target for status in self.statuses for target in status.selected]
        devices = {target.device for target in targets}
        return device_figures(self.database, self.host, devices, WorkerMeter(self.pool, targets))

    def copy_costs(self) -> HostCopies | None:
        """Return what copies between the devices of the targets cost; None if there is no device but the CPU."""
        return host_copies(self.device_figures, [target for each in self.statuses for target in each.selected])

    def warm_devices(self, weights_bytes: int) -> frozenset[str]:
        """Return the devices whose caches hold all of a model's weights, so that a run finds those the last one read.

        Args:
            weights_bytes: Of the whole model.
        """
        return warm_devices(self.device_figures, weights_bytes)


def selected(choices: SetupChoices, registry: Registry) -> Selection:
    """Return which targets take part, once it is known that what is named is there; no worker is asked.

    Args:
        choices: What the user wants.
        registry: The toolchains.

    Raises:
        UsageError: If something is misspelt, not installed, or failed to load.
    """
    selection = choices.selection
    selection.toolchains(registry)
    check_reference(choices.reference, registry)
    return selection
