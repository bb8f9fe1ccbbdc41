"""Load an artifact as core does, and see what loading does besides."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from collage_core.contract import Artifact, DeviceStream, Host, Kernel, KernelFunction, RunContext, Target, Unsupported
from collage_core.registry import Toolchain
from collage_testing.kit.busy_threads import threads_here
from collage_testing.kit.clauses import LOADING
from collage_testing.kit.contexts import run_context
from collage_testing.kit.started_processes import started_processes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Loaded:
    """A loaded artifact.

    Attributes:
        kernel: The kernel, or why it cannot run here.
        run: The context it was loaded with.
        threads_before: Threads of the process before.
        problems: What loading did that it must not.
    """

    kernel: Kernel | Unsupported
    run: RunContext
    threads_before: frozenset[int]
    problems: list[str]


def loaded(
    toolchain: Toolchain,
    target: Target,
    artifact: Artifact,
    function: KernelFunction,
    folder: Path,
    *,
    threads: int,
    host: Host,
    device: DeviceStream | None,
) -> Loaded:
    """Load an artifact.

    Args:
        toolchain: Whose it is.
        target: The target it was built for.
        artifact: The artifact, as it arrives in another process.
        function: What it was made from.
        folder: Parent of scratch directories.
        threads: CPU threads the kernel may use.
        host: The machine.
        device: Stream of the target's device; None for the CPU.

    Raises:
        CollageError: If the toolchain fails.
    """
    before, scratch = threads_here(), Path(tempfile.mkdtemp(dir=folder))
    if device is not None:
        device.activate()
    run = run_context(artifact, function, target, device, host=host, threads=threads, scratch=scratch)
    toolchain.check_data(target, artifact)  # whatever it answers: that it fails is in the exception
    with started_processes() as started:
        kernel = toolchain.load(target, artifact, run)
    problems = [LOADING.broken(f"collage_load starts a process: {started[0]}")] if started else []
    return Loaded(kernel=kernel, run=run, threads_before=before, problems=problems)
