"""Calls of one kernel, with everything the contract forbids looked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from collage.measure.worker.verdicts import aliased, judged, share_memory, spoil
from collage_core.contract import (
    Artifact,
    BoundCall,
    DeviceStream,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
    ValueKind,
)
from collage_core.errors import CollageError, DeviceCaptureError, KernelError
from collage_core.ir.io.model_io import model_to_bytes
from collage_core.registry import Toolchain
from collage_testing.kit.bound_kernel import BoundKernel
from collage_testing.kit.busy_threads import busy_threads
from collage_testing.kit.clauses import (
    ALIASING,
    BINDING,
    CAPTURING,
    FUNCTION,
    HANDING,
    MEMORY,
    NUMBERS,
    PROFILE,
    REPEATING,
    THREADS,
    WRITING,
)
from collage_testing.kit.kept_memory import SLIGHT_BYTES, kept_bytes
from collage_testing.kit.operands import Operands

_PROFILED_RUNS = 1


def called(
    kernel: Kernel,
    function: KernelFunction,
    artifact: Artifact,
    what: Operands,
    device: DeviceStream | None,
) -> list[str]:
    """Bind three times and call the first, the second, the first again, one less well aligned, and a graph.

    The graph is of calls on a device that may be captured. A kernel of a device may refuse to be bound to places
    that are less aligned than core's own, since that is an error its user sees; it may not go wrong there.
    """
    given, expected, conditioning = what.given, what.expected, what.conditioning
    first, second = (BoundKernel(kernel, artifact, function, given, device) for _ in range(2))
    bound = {"": first, " when bound again": second, " when run after another binding": first}
    if device is None:
        bound[" when run again"] = first  # a kernel may put one of two arrays in turn
    try:
        unaligned = BoundKernel(kernel, artifact, function, given, device, aligned=False)
        bound[" when bound to a caller's own arrays"] = unaligned
    except KernelError:
        if device is None:
            raise
    problems: list[str] = []
    seen: list[list[bytes]] = []
    put: list[Any] = []
    right_at_first = True
    graph = " when captured in a graph"
    if device is not None and artifact.capturable:
        bound[graph] = first
    for when, each in bound.items():
        for buffer, right in zip(each.outputs, expected, strict=True):
            spoil(buffer, right)
        places = [buffer.value for buffer in (*each.inputs, *each.outputs)]
        try:
            each.replay() if when == graph else each.call()
        except DeviceCaptureError as error:
            problems.append(CAPTURING.broken(f"the artifact says it is capturable, and it is not: {error.reason}"))
            continue
        verdict = judged(what.judge, each.outputs, expected, conditioning)
        if isinstance(verdict, str):
            clause = BINDING if seen and right_at_first else NUMBERS
            problems.append(clause.broken(f"wrong numbers{when}: {verdict}"))
        right_at_first = right_at_first and (bool(seen) or not isinstance(verdict, str))
        if problem := aliased(each.inputs, each.outputs, places):
            problems.append(ALIASING.broken(f"{problem}{when}"))
        for buffer in each.outputs:
            if buffer.spec.kind is ValueKind.FOREIGN:
                if any(share_memory(buffer.value, before) for before in put):
                    problems.append(
                        HANDING.broken(f"it puts the memory of its output {buffer.spec.name!r} again{when}")
                    )
                put.append(buffer.value)
        for buffer, value in zip(each.inputs, given, strict=True):
            if buffer.spec.kind is not ValueKind.FOREIGN and _bits(buffer.array) != _bits(np.asarray(value)):
                problems.append(WRITING.broken(f"it writes its input {buffer.spec.name!r}{when}"))
        seen.append([_bits(b.array) for b in each.outputs if b.spec.kind is not ValueKind.FOREIGN])
    if not problems and artifact.deterministic and not seen[0] == seen[1] == seen[2]:
        problem = "equal inputs give other bits when run again, yet the artifact says it is deterministic"
        problems.append(REPEATING.broken(problem))
    return problems


def called_often(
    kernel: Kernel, function: KernelFunction, artifact: Artifact, what: Operands, threads: int, before: frozenset[int]
) -> list[str]:
    """Call a right kernel of the CPU many times, and look at what it takes of the process.

    Args:
        kernel: The kernel.
        function: What it computes.
        artifact: What it was loaded from.
        what: What it reads.
        threads: CPU threads that it may use.
        before: Threads of the process before it was loaded.
    """
    bound = BoundKernel(kernel, artifact, function, what.given)
    problems = []
    if (busy := busy_threads(bound.call, before)) > threads:
        problems.append(THREADS.broken(f"its calls keep {busy} threads busy, and may use {threads}"))
    if (kept := kept_bytes(bound.call)) > SLIGHT_BYTES:
        problems.append(MEMORY.broken(f"each call keeps {kept} bytes"))
    return problems


def profiled(
    toolchain: Toolchain,
    target: Target,
    function: KernelFunction,
    artifact: Artifact,
    run: RunContext,
    given: Sequence[Any],
    device: DeviceStream | None,
) -> list[str]:
    """Have a correct kernel profiled; the façade looks at the answer, and a refusal is one."""
    held: list[BoundKernel] = []

    def bind(kernel: Kernel) -> BoundCall:
        held.append(BoundKernel(kernel, artifact, function, given, device))
        return held[-1].call

    before = model_to_bytes(function.model)
    try:
        toolchain.profile(target, function, artifact, run, bind, _PROFILED_RUNS)
    except CollageError as error:
        return [PROFILE.broken(str(error))]
    same = model_to_bytes(function.model) == before
    return [] if same else [FUNCTION.broken("collage_profile changes the function it is given")]


def _bits(array: np.ndarray[Any, Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()
