"""Machines of a runner that measure for this one: of the same kind, with the same libraries, in leases of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

from collage.fleet.describing import described, why_not
from collage.fleet.fleet_measurer import FleetMeasurer
from collage.fleet.interference import MOST, slowdown
from collage.fleet.jobs import Description
from collage.fleet.runners import open_runner
from collage.measure.wire.blobs import BlobStore
from collage_core.contract import Host, Runner, RunnerHost, Target
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
            machines: dict[str, list[tuple[RunnerHost, Description]]] = {}
            for each, description in found:
                reason = why_not(description, host, targets, plugins)
                if reason:
                    notes.append(f"{each.name} of {name} takes no part: {reason}")
                else:
                    machines.setdefault(description.boot, []).append((each, description))
            leases = []
            for parts in machines.values():
                kept, said = _split(runner, name, _leases(parts, threads, devices), threads, devices, split)
                leases += kept
                notes += said
            if not leases:
                raise RunnerError(name, "; ".join(notes) or "it has no machines")
            yield cls(FleetMeasurer(runner, name, leases, threads, store), tuple(notes))
        finally:
            runner.close()


def _leases(parts: Sequence[tuple[RunnerHost, Description]], cores: int, devices: int) -> list[str]:
    """Return the name of a part of one machine for each lease that there is room for.

    What runners count may be more than there is: hyper-threads, or one machine's cores in each of its parts.
    """
    most = max(1, parts[0][1].host.physical_cores // cores)
    leases = []
    for host, _ in parts:
        room = [host.cores // cores, host.at_once, *([host.devices // devices] if devices else [])]
        leases += [host.name] * min(room)
    return leases[:most]


def _split(
    runner: Runner, name: str, leases: Sequence[str], cores: int, devices: int, split: bool | None
) -> tuple[list[str], list[str]]:
    """Return the leases of one machine that may be used at once, and what is said about it."""
    if len(leases) == 1 or split:
        return list(leases), []
    if split is False:
        return [leases[0]], []
    try:
        ratio = slowdown(runner, name, leases, cores, devices)
    except RunnerError as error:
        return [leases[0]], [f"{leases[0]} measures one candidate at a time: {error}"]
    if ratio is not None and ratio <= MOST:
        return list(leases), []
    why = (
        f"it cannot be told whether {len(leases)} at once slow each other"
        if ratio is None
        else f"{len(leases)} at once would slow each other ({ratio:.2f} of the time alone, {MOST} is allowed)"
    )
    return [leases[0]], [f"{leases[0]} measures one candidate at a time: {why}"]
