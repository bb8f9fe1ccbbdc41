"""Lower a kernel function to variants of a shared library each: one for each arrangement of loops.

Those of our own come first, then those of Halide's autoschedulers as far as the effort is worth them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Hashable, Iterator, Sequence
from typing import TypeAlias

from collage_core.contract import Artifact, BuildContext, KernelFunction, Unsupported
from collage_core.errors import LoweringError
from collage_halide import hl
from collage_halide.arrange import arrange
from collage_halide.arrangement import PLAIN, Arrangement, arrangements
from collage_halide.autoschedulers import AUTOSCHEDULERS, Autoscheduler, autoschedulers
from collage_halide.compile import compiled, linked, standalone_runtime
from collage_halide.errors import Refused
from collage_halide.machine import halide_target, requirements, vector_bytes, version
from collage_halide.native import soname_of
from collage_halide.pipeline import Group, group_of

KERNEL, RUNTIME = "kernel.so", "runtime.so"
Variant: TypeAlias = Arrangement | Autoscheduler
_OWN_FIRST = 2
"""Arrangements of our own that go before those of autoschedulers."""


def lower(function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
    """Compile a function, once per arrangement, on demand.

    Args:
        function: The group.
        build: The machine, and how many variants or which one.
    """
    width = vector_bytes(build.host)
    try:
        group = group_of(function, width, build.threads)
    except Refused as refusal:
        return Unsupported(refusal.reason)
    own = arrangements(group)
    wanted: list[Variant] = [*own[:_OWN_FIRST], *autoschedulers(build.effort), *own[_OWN_FIRST:]]
    if build.variant is not None:
        known: list[Variant] = [*own, *AUTOSCHEDULERS, PLAIN]
        wanted = [each for each in known if each.name == build.variant]
        if not wanted:
            return Unsupported(f"it has no variant {build.variant!r} of this group")
    return itertools.islice(_variants(function, build, wanted, width), build.max_variants)


def _variants(
    function: KernelFunction, build: BuildContext, wanted: Sequence[Variant], width: int
) -> Iterator[Artifact]:
    tried: set[Hashable] = set()
    found, failed = False, None
    for how in wanted:
        group = group_of(function, width, build.threads)
        try:
            schedule = _schedule(group, how, build, width)
            if schedule in tried:
                continue  # the same code under another name
            tried.add(schedule)
            content = compiled(group, build) if group.outputs else b""
        except hl.HalideError as error:
            failed = failed or LoweringError(f"Halide does not compile it: {str(error).strip()}")
            continue
        found = True
        yield _artifact(function, build, how, group, content)
    if failed is not None and not found:
        if PLAIN in wanted or build.variant is not None:
            raise failed
        yield from _variants(function, build, [PLAIN], width)


def _schedule(group: Group, how: Variant, build: BuildContext, width: int) -> Hashable:
    """Schedule a group; return what is equal for variants that give the same code."""
    if not isinstance(how, Autoscheduler):
        return arrange(group, how, build.threads, width // 4)
    if not group.outputs:  # an autoscheduler crashes; own schedules are empty, too
        return ()
    how.schedule(group, build)
    return how.name


def _artifact(function: KernelFunction, build: BuildContext, how: Variant, group: Group, content: bytes) -> Artifact:
    files = {}
    if content:
        runtime = _runtime(build)
        needs = [(soname_of(runtime), runtime)]
        files = {KERNEL: linked(content, build.scratch, needs=needs), RUNTIME: runtime}
    places = [[place.where, place.name, list(place.shape), place.kind.code, place.kind.bits] for place in group.places]
    constants = {
        str(place.name): function.constants[str(place.name)] for place in group.places if place.where == "weight"
    }
    return Artifact(
        files=files,
        metadata={"places": places},
        requires=requirements(build.host),
        constants=constants,
        variant=how.name,
        deterministic=True,
    )


def _runtime(build: BuildContext) -> bytes:
    """Return the runtime, from the cache if it was made before."""
    key = json.dumps(["runtime", version(), str(halide_target(build.host))])
    known = build.blobs.get(key)
    if known is None:
        known = standalone_runtime(build.host)
        build.blobs.put(key, known)
    return known
