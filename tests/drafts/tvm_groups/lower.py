"""Variants of a group, one compiled library each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import onnx_ir

from collage_core.contract import Artifact, BuildContext, KernelFunction, Requirement, Unsupported
from tests.drafts.tvm_groups.compiler import embedded
from tests.drafts.tvm_groups.schedules import Schedule, level_flags, processor_level, schedules

LIBRARY = "kernel.so"

Compile: TypeAlias = Callable[[KernelFunction, Schedule, str, Path], bytes]
"""`compile_group`, or what a test puts in its place."""

_MOST_OPERATIONS = 256
"""A value read twice is computed twice, so a chain of n diamonds has 2**n operations."""


def lower(
    function: KernelFunction,
    build: BuildContext,
    version: str,
    compile_group: Compile,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Artifact] | Unsupported:
    """Compiles a group, once per arrangement of its loops, each when it is asked for.

    Core times the variants; this stops where another would not be done in time. What was compiled once is taken from
    the blob cache: the arrangement that won is asked for again at every call site.

    Args:
        function: The group.
        build: For whom, and how long.
        version: Of TVM.
        compile_group: Does it.
        clock: Seconds.
    """
    if (operations := _operations(function)) > _MOST_OPERATIONS:
        return Unsupported(
            f"inlined, the group has {operations} operations per element; it makes up to {_MOST_OPERATIONS}"
        )
    level = processor_level(build.host)
    wanted = schedules([spec.static_shape for spec in function.outputs], build.threads, level)
    if build.variant is not None:
        wanted = tuple(each for each in wanted if each.name == build.variant)
        if not wanted:
            return Unsupported(f"it has no variant {build.variant!r} of this group")
    return _variants(function, build, version, compile_group, clock, level, wanted[: build.max_variants])


def _operations(function: KernelFunction) -> int:
    """Operations per element once every inner value is put in place where it is read."""
    counts: dict[onnx_ir.Value, int] = {}
    for node in function.model.graph:
        counts[node.outputs[0]] = 1 + sum(counts.get(value, 0) for value in node.inputs if value is not None)
    return max(counts[value] for value in function.model.graph.outputs)


def _variants(
    function: KernelFunction,
    build: BuildContext,
    version: str,
    compile_group: Compile,
    clock: Callable[[], float],
    level: str,
    wanted: tuple[Schedule, ...],
) -> Iterator[Artifact]:
    began, longest = clock(), 0.0
    literals = embedded(function)
    constants = {name: content for name, content in function.constants.items() if name not in literals}
    for schedule in wanted:
        key = f"{function.structural_hash}/{level}/{schedule.name}"
        library = build.blobs.get(key)
        if library is None:
            start = clock()
            if longest and start - began + longest > build.tuning_s:
                return
            library = compile_group(function, schedule, level, build.scratch)
            longest = max(longest, clock() - start)
            build.blobs.put(key, library)
        yield Artifact(
            files={LIBRARY: library},
            metadata={"constants": list(constants), "chunks": schedule.chunks},
            requires=(
                # calls between the library and TVM's runtime are those of one version
                Requirement(kind="library", name="apache-tvm", specifier=f"=={version}"),
                *(Requirement(kind="isa", name=flag) for flag in level_flags(level)),
            ),
            constants=constants,
            variant=schedule.name,
        )
