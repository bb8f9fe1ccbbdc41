"""What machines of a runner are, and whether one measures for this one."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Mapping, Sequence
from typing import Final

from collage.errors import WireError
from collage.fleet.jobs import AskDescription, Description, from_bytes, to_bytes
from collage.measure.worker.judge_version import JUDGE
from collage.report.figures import counted
from collage_core.contract import Host, Job, Runner, RunnerHost, Target
from collage_core.errors import RunnerError

_DEADLINE_S: Final = 300.0
"""How long all machines together have to say what they are: processes start there, and libraries are imported."""


def described(
    runner: Runner, name: str, toolchains: Sequence[str] | None, *, cores: int | None, devices: int | None
) -> tuple[list[tuple[RunnerHost, Description]], list[str]]:
    """Ask all machines at once what they are.

    Args:
        runner: Has the machines.
        name: What the user calls it.
        toolchains: Toolchains to ask for; all that are installed there if None.
        cores: Physical cores of the lease that is asked; None for as many as the machine has.
        devices: Devices of that lease; None for as many as it has.

    Returns:
        What they answer, and a sentence for each that has no answer.

    Raises:
        RunnerError: If the runner does not say what machines it has.
    """
    found, notes, jobs = [], list[str](), []
    body = to_bytes(AskDescription(toolchains=None if toolchains is None else tuple(toolchains)))
    for host in runner.hosts():
        wanted = host.devices if devices is None else devices
        if host.cores < (cores or 1) or host.devices < wanted:
            has = f"it has {counted(host.cores, 'core')} and {counted(host.devices, 'device')}"
            notes.append(f"{host.name} of {name} takes no part: {has}, fewer than kernels need")
        else:
            job = Job(host=host.name, cores=cores or host.cores, devices=wanted, body=body)
            jobs.append((host, runner.submit(job, _nothing)))
    deadline = time.monotonic() + _DEADLINE_S
    for host, answered in jobs:
        try:
            answer = from_bytes(answered.result(max(0.0, deadline - time.monotonic())).body)
        except concurrent.futures.TimeoutError:
            notes.append(f"{host.name} of {name} takes no part: it did not answer in {_DEADLINE_S:g} s; is it busy?")
        except (RunnerError, WireError) as error:
            notes.append(f"{host.name} of {name} takes no part: {error}")
        else:
            if isinstance(answer, Description):
                found.append((host, answer))
            else:
                notes.append(f"{host.name} of {name} takes no part: it answered with {type(answer).__name__}")
    return found, notes


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


def _nothing(blob: str) -> bytes:
    raise KeyError(blob)
