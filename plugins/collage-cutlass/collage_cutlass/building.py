"""Compile several kernels in parallel, keep their libraries, and replace kernels that do not compile."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from collage_core.contract import BuildContext
from collage_cutlass.menu import AnyTile
from collage_cutlass.toolkit import CompileError, Compiler

_SHARE = 0.6
"""Share of the remaining time that one compilation may take, so that time for a replacement is left."""


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """A kernel to compile.

    Attributes:
        tile: Tile of the kernel.
        source: Source code.
        key: Key of its library in the cache.
    """

    tile: AnyTile
    source: str
    key: str


def libraries(
    compiler: Compiler,
    flags: tuple[str, ...],
    jobs: Iterable[Job],
    build: BuildContext,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[tuple[Job, bytes], None, str]:
    """Yield as many libraries as core will try, in order; a job that fails to compile is replaced by the next.

    Args:
        compiler: Compiles the libraries.
        flags: Compiler flags.
        jobs: The kernels, the best guess first.
        build: Number of variants, number of parallel compilations, deadline and blob cache.
        clock: Returns the time in seconds.

    Returns:
        Why some are missing; empty if none is.
    """
    waiting, start = iter(jobs), clock()
    reasons: list[str] = []

    def compiled(job: Job) -> bytes:
        return compiler.compiled(job.source, flags, max(1.0, _SHARE * (build.deadline_s - (clock() - start))))

    with ThreadPoolExecutor(max_workers=max(1, build.threads)) as pool:

        def begun(job: Job) -> tuple[Job, bytes | Future[bytes]]:
            # the blob cache is asked and told by this thread alone: nothing says that it may be by several
            known = build.blobs.get(job.key)
            return job, pool.submit(compiled, job) if known is None else known

        running = collections.deque(begun(job) for job in itertools.islice(waiting, max(1, build.max_variants)))
        try:
            while running:
                job, library = running.popleft()
                if isinstance(library, Future):
                    try:
                        library = library.result()
                    except CompileError as error:
                        reasons.append(f"{job.tile.name}: {error}")
                        running.extend(begun(other) for other in itertools.islice(waiting, 1))
                        continue
                    build.blobs.put(job.key, library)
                yield job, library
        finally:
            for _, library in running:  # nobody wants them any more
                if isinstance(library, Future):
                    library.cancel()
    return "; ".join(dict.fromkeys(reasons))
