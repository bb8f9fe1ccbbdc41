"""Machines of a runner that measure for this one: of the same kind, with the same libraries, in leases of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from collage.errors import WireError
from collage.fleet.fleet_measurer import FleetMeasurer
from collage.fleet.interference import MOST, slowdown
from collage.fleet.jobs import AskDescription, Description, from_bytes, to_bytes
from collage.fleet.runners import open_runner
from collage.measure.wire.blobs import BlobStore
from collage.measure.worker.judge_version import JUDGE
from collage.report.figures import counted
from collage_core.contract import Host, Job, Runner, RunnerHost, Target
from collage_core.contract.device import HOST
from collage_core.errors import RunnerError


class Fleet:
    """Machines that measure.

    Attributes:
        measurer: Measures on them.
        notes: What the user should know: who takes no part, and why.
    """

    def __init__(self, measurer: FleetMeasurer, notes: tuple[str, ...]) -> None:
        self.measurer = measurer
        self.notes = notes

    @classmethod
    @contextlib.contextmanager
    def open(
        cls,
        name: str,
        *,
        host: Host,
        threads: int,
        targets: Sequence[Target],
        plugins: Mapping[str, str],
        store: BlobStore,
        split: bool | None = None,
    ) -> Iterator[Fleet]:
        """Open a runner, and lease what it has; given back when the context is left.

        Args:
            name: What the user calls the runner.
            host: This machine; others measure for it only if they are of its kind.
            threads: CPU threads of every kernel, so cores of a lease.
            targets: The targets whose kernels are measured.
            plugins: Version of each toolchain's plugin here.
            store: Has the byte strings that requests refer to.
            split: Whether a machine measures several candidates at once; None to find out whether it may.

        Raises:
            UsageError: If there is no such runner.
            RunnerError: If none of its machines can measure for this one.
        """
        runner = open_runner(name)
        try:
            devices = int(any(target.device != HOST for target in targets))
            toolchains = sorted({target.toolchain for target in targets})
            found, notes = described(runner, name, toolchains, cores=threads, devices=devices)
            usable: dict[str, list[str]] = {}
            for each, description in found:
                reason = why_not(description, host, targets, plugins)
                if reason:
                    notes.append(f"{each.name} of {name} takes no part: {reason}")
                else:
                    usable.setdefault(description.boot, []).extend([each.name] * (each.cores // threads))
            leases = []
            for machine in usable.values():
                kept, said = _split(runner, name, machine, threads, split)
                leases += kept
                notes += said
            if not leases:
                raise RunnerError(name, "; ".join(notes) or "it has no machines")
            yield cls(FleetMeasurer(runner, name, leases, threads, store), tuple(notes))
        finally:
            runner.close()


def why_not(description: Description, host: Host, targets: Sequence[Target], plugins: Mapping[str, str]) -> str:
    """Return why what is measured on a machine says nothing about this one; empty if it does.

    Args:
        description: The machine.
        host: This machine.
        targets: Whose kernels are measured.
        plugins: Version of each toolchain's plugin here.
    """
    devices = sorted({target.device for target in targets})
    if description.host.fingerprint_for(*devices) != host.fingerprint_for(*devices):
        return f"it is another kind of machine ({description.host.fingerprint_for(*devices)})"
    if description.judge != JUDGE:
        return f"its Collage judges kernels by version {description.judge}, this one by {JUDGE}"
    for toolchain in sorted({target.toolchain for target in targets}):
        there = description.targets.get(toolchain)
        if there is None:
            return f"{toolchain} is unusable there: {description.unusable.get(toolchain, 'it is not installed')}"
        if description.plugins.get(toolchain, "") != plugins.get(toolchain, ""):
            return f"its plugin is {description.plugins.get(toolchain)}, here {plugins.get(toolchain)}"
        for target in targets:
            if target.toolchain == toolchain and target not in there:
                versions = ", ".join(sorted({each.fingerprint for each in there}))
                return f"{target.name} is {target.fingerprint} here, there is {versions} there"
    return ""


def described(
    runner: Runner, name: str, toolchains: Sequence[str] | None, *, cores: int, devices: int | None
) -> tuple[list[tuple[RunnerHost, Description]], list[str]]:
    """Ask all machines at once what they are.

    Args:
        runner: Has the machines.
        name: What the user calls it.
        toolchains: Toolchains to ask for; all that are installed there if None.
        cores: Physical cores that a machine is to have.
        devices: Devices that it is to have; None for as many as it has.

    Returns:
        What they answer, and a sentence for each that has no answer.
    """
    found, notes, jobs = [], list[str](), []
    body = to_bytes(AskDescription(toolchains=None if toolchains is None else tuple(toolchains)))
    for host in runner.hosts():
        wanted = host.devices if devices is None else devices
        if host.cores < cores or host.devices < wanted:
            has = f"it has {counted(host.cores, 'core')} and {counted(host.devices, 'device')}"
            notes.append(f"{host.name} of {name} takes no part: {has}, fewer than kernels need")
        else:
            job = Job(host=host.name, cores=cores, devices=wanted, body=body)
            jobs.append((host, runner.submit(job, _nothing)))
    for host, answered in jobs:
        try:
            answer = from_bytes(answered.result().body)
        except (RunnerError, WireError) as error:
            notes.append(f"{host.name} of {name} takes no part: {error}")
            continue
        if isinstance(answer, Description):
            found.append((host, answer))
        else:
            notes.append(f"{host.name} of {name} takes no part: it answered with {type(answer).__name__}")
    return found, notes


def _split(
    runner: Runner, name: str, leases: Sequence[str], cores: int, split: bool | None
) -> tuple[list[str], list[str]]:
    """Return the leases of one machine that may be used at once, and what is said about it."""
    if len(leases) == 1 or split:
        return list(leases), []
    if split is False:
        return [leases[0]], []
    ratio = slowdown(runner, name, leases, cores)
    if ratio <= MOST:
        return list(leases), []
    note = (
        f"{leases[0]} measures one candidate at a time: {len(leases)} at once would slow each other "
        f"({ratio:.2f} of the time alone, {MOST} is allowed)"
    )
    return [leases[0]], [note]


def _nothing(blob: str) -> bytes:
    raise KeyError(blob)
