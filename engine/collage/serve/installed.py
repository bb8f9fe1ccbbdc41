"""What is installed on a machine of a runner: described, and asked to measure."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from collage.fleet.jobs import AskDescription, Description
from collage.installed_code import plugin_version
from collage.measure.driver.client import PluginSource
from collage.measure.driver.worker_pool import WorkerPool
from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Failed, Outcome, Stage
from collage.measure.worker.judge_version import JUDGE
from collage.setup.targets import answers
from collage_core.contract import Host, Target, Unsupported
from collage_core.registry import Registry

_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Installed:
    """The toolchains that are installed, each with its worker; a job names one, and brings no code.

    Args:
        host: The machine, all of its cores.
        leased: The machine with the cores of the lease.
        store: Has the byte strings that requests refer to.
    """

    def __init__(self, host: Host, leased: Host, store: BlobStore) -> None:
        self._host = host
        self._leased = leased
        self._registry = Registry.discover()
        self._pool = WorkerPool((PluginSource(toolchain=name) for name in self._registry.toolchains), store)
        self._known: dict[str, tuple[Target, ...] | Unsupported] = {}

    def described(self, ask: AskDescription) -> Description:
        """Return what the machine is, and which targets its toolchains have."""
        toolchains = self._registry.toolchains
        names = sorted(toolchains if ask.toolchains is None else toolchains.keys() & set(ask.toolchains))
        self._learn(names)
        found = {name: self._known[name] for name in names}
        return Description(
            host=self._host,
            leased=self._leased,
            boot=_boot(),
            judge=JUDGE,
            targets={name: answer for name, answer in found.items() if not isinstance(answer, Unsupported)},
            plugins={name: plugin_version(toolchains[name]) for name in names},
            unusable={name: answer.reason for name, answer in found.items() if isinstance(answer, Unsupported)},
        )

    def measured(self, ask: AskMeasure) -> Outcome:
        """Build, check and time a candidate, if its target is here exactly as the request has it."""
        name = ask.target.toolchain
        if name not in self._registry.toolchains:
            return Failed(stage=Stage.START, reason=f"{name} is not installed there")
        self._learn([name])
        known = self._known[name]
        if isinstance(known, Unsupported):
            return Failed(stage=Stage.START, reason=f"{name} is unusable there: {known.reason}")
        if ask.target not in known:
            versions = ", ".join(sorted({target.fingerprint for target in known}))
            reason = f"its target {ask.target.name} of {ask.target.fingerprint} is not there, but {versions}"
            return Failed(stage=Stage.START, reason=reason)
        return self._pool.worker(name).measure(ask)

    def rest(self) -> None:
        """End the workers until they are asked again."""
        self._pool.close()

    def interrupt(self) -> None:
        """End the workers from another thread than that which asks them."""
        for name in self._registry.toolchains:
            pid = self._pool.worker(name).pid
            if pid is not None:
                with contextlib.suppress(OSError):  # it ended meanwhile
                    os.killpg(pid, signal.SIGKILL)

    def close(self) -> None:
        """End the workers; closing again does nothing."""
        self._pool.close()

    def _learn(self, toolchains: Iterable[str]) -> None:
        """Ask toolchains for their targets, each once."""
        new = [name for name in toolchains if name not in self._known]
        self._known |= answers(self._registry, self._pool, self._host, new)


def _boot() -> str:
    """Return the system's identifier of its start; that of this process where there is none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return f"process {os.getpid()}"
