"""What the machine computes and moves at best with a number of threads, measured once and kept."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import ClassVar

from collage.documents.strict import strict_converter
from collage.own_process import own_command
from collage.peaks.caches import Cache, caches
from collage.peaks.numpy_main import NumpyAnswer, NumpyRequest
from collage.store import TuningStore
from collage_core.contract import Host, Target, Unsupported

MEMORY = "memory"
"""Name of the level behind all caches; also what bounds a kernel that moves more than it computes."""
ARITHMETIC = "arithmetic"
"""What bounds a kernel that computes more than it moves."""

_BY_NUMPY = ("float32", "float64")
"""Element types of which NumPy has products of a library's; of others it has loops of its own."""
_OWN_BYTES = 4 << 20
"""Size up to which a core's own cache is measured on one thread: a call takes too little time to start it on many."""
_MOST_BYTES = 512 << 20
_MEMORY_TIMES = 4
"""How often the last cache fits into what memory is measured with."""
_DEADLINE_S = 60
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

Run = Callable[[NumpyRequest], NumpyAnswer | Unsupported]
"""Measures in another process."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LevelSpeed:
    """How fast a level of memory is.

    Attributes:
        name: `"L1"`, `"L2"`, ... or `MEMORY`.
        holds_bytes: Bytes it holds for all threads; 0 for `MEMORY`, which holds everything.
        bytes_per_us: Bytes read and written in a microsecond by all threads.
    """

    name: str
    holds_bytes: int
    bytes_per_us: float

    def __post_init__(self) -> None:
        if self.bytes_per_us <= 0:
            raise ValueError(f"{self.bytes_per_us} bytes in a microsecond is no speed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProductSpeed:
    """The fastest product of large matrices in one arithmetic.

    Attributes:
        arithmetic: `"float32"`, `"float64"`, `"bfloat16"`, `"float16"` or `"int8"`.
        flops_per_us: Operations in a microsecond, two for each multiply-add.
        by: What computed it: `"numpy"` or a target.
    """

    arithmetic: str
    flops_per_us: float
    by: str

    def __post_init__(self) -> None:
        if self.flops_per_us <= 0:
            raise ValueError(f"{self.flops_per_us} operations in a microsecond is no speed")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MachinePeaks:
    """What is known of a machine and a number of threads.

    Attributes:
        levels: The levels of memory, the nearest first; none if they could not be measured.
        products: The fastest product of each arithmetic that was asked for so far.
        asked: Who was asked for a product, as `asking` writes it: nobody is asked twice.
        repeated: What was measured again, `ARITHMETIC` or `MEMORY`, once for each time.
    """

    KIND: ClassVar[str] = "peaks"
    VERSION: ClassVar[int] = 1

    levels: tuple[LevelSpeed, ...] = ()
    products: tuple[ProductSpeed, ...] = ()
    asked: frozenset[str] = frozenset()
    repeated: tuple[str, ...] = ()

    def product(self, arithmetic: str) -> ProductSpeed | None:
        """Return the fastest product in an arithmetic; None if none is known."""
        return next((each for each in self.products if each.arithmetic == arithmetic), None)

    def level_of(self, nbytes: int) -> LevelSpeed | None:
        """Return the nearest level that holds some bytes; None if nothing is known."""
        return next((each for each in self.levels if not each.holds_bytes or nbytes <= each.holds_bytes), None)

    def with_product(self, found: ProductSpeed) -> MachinePeaks:
        """Return the same with a product, unless a faster one is known."""
        known = self.product(found.arithmetic)
        if known is not None and known.flops_per_us >= found.flops_per_us:
            return self
        others = [each for each in self.products if each is not known]
        return dataclasses.replace(self, products=tuple(sorted([*others, found], key=lambda each: each.arithmetic)))

    def with_levels(self, found: Sequence[LevelSpeed]) -> MachinePeaks:
        """Return the same with levels of memory, each at the faster of the speeds that are known."""
        known = {each.name: each.bytes_per_us for each in self.levels}
        faster = (
            dataclasses.replace(each, bytes_per_us=max(each.bytes_per_us, known.get(each.name, 0.0))) for each in found
        )
        return dataclasses.replace(self, levels=tuple(faster) or self.levels)


def asking(arithmetic: str, target: Target) -> str:
    """Return what stands for a target having been asked for a product in an arithmetic."""
    return f"{arithmetic} {target.name} {target.fingerprint}"


def side_of(threads: int) -> int:
    """Return the side of matrices that are large for a number of threads: some milliseconds' work."""
    return 1024 if threads <= 8 else 2048 if threads <= 32 else 4096


def document_name(host: Host, threads: int) -> str:
    """Return the name under which the peaks of a machine are kept."""
    return f"{host.fingerprint}/{threads}"


def known_peaks(
    database: TuningStore,
    host: Host,
    threads: int,
    arithmetics: Collection[str],
    run: Run,
    *,
    again: Collection[str] = (),
) -> tuple[MachinePeaks, str]:
    """Return the peaks of this machine; what the database lacks is measured by NumPy and kept.

    Args:
        database: Source of known peaks, and store of new ones.
        host: This machine.
        threads: Threads of a plan.
        arithmetics: Whose products are wanted; of some NumPy has none.
        run: Measures in another process, as `run_numpy`.
        again: What to measure though it is known, to keep the faster: `ARITHMETIC`, `MEMORY` or both.

    Returns:
        The peaks, and why some are missing that were to be measured; empty if none is.
    """
    name = document_name(host, threads)
    known = database.get_document(MachinePeaks, name) or MachinePeaks()
    wanted = [
        each for each in _BY_NUMPY if each in arithmetics and (ARITHMETIC in again or known.product(each) is None)
    ]
    levels = () if known.levels and MEMORY not in again else _levels(caches(threads), threads, host.memory_bytes)
    if not wanted and not levels:
        return known, ""
    request = NumpyRequest(
        threads=threads,
        levels=tuple((level.working_bytes, level.own) for level in levels),
        products=tuple((each, side_of(threads)) for each in wanted),
    )
    answer = run(request)
    if isinstance(answer, Unsupported):
        return known, answer.reason
    measured = [
        LevelSpeed(name=level.name, holds_bytes=level.holds_bytes, bytes_per_us=rate)
        for level, rate in zip(levels, answer.bytes_per_us, strict=True)
    ]
    known = known.with_levels(measured)
    flops = 2.0 * side_of(threads) ** 3
    for arithmetic, time_us in zip(wanted, answer.products_us, strict=True):
        known = known.with_product(ProductSpeed(arithmetic=arithmetic, flops_per_us=flops / time_us, by="numpy"))
    database.put_document(name, known)
    return known, ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    """A level of memory to measure.

    Attributes:
        name: Its name.
        holds_bytes: See `LevelSpeed`.
        working_bytes: What to work on: half of what it holds, for the other half holds other things.
        own: Whether that is the part of one thread, which has a cache of its own.
    """

    name: str
    holds_bytes: int
    working_bytes: int
    own: bool = False


def _levels(found: Iterable[Cache], threads: int, memory_bytes: int) -> tuple[_Level, ...]:
    levels = []
    last = 0
    for cache in found:
        last = cache.holds_bytes
        own = cache.count == threads and cache.size_bytes <= _OWN_BYTES
        working = (cache.size_bytes if own else last) // 2
        levels.append(_Level(name=f"L{cache.level}", holds_bytes=last, working_bytes=working, own=own))
    size = min(max(_MEMORY_TIMES * last, 64 << 20), _MOST_BYTES, memory_bytes // 8)
    return (*levels, _Level(name=MEMORY, holds_bytes=0, working_bytes=size))


def run_numpy(request: NumpyRequest) -> NumpyAnswer | Unsupported:
    """Measure in a process whose libraries use as many threads as the request; return why not if it fails."""
    converter = strict_converter()
    command = own_command("collage.peaks.numpy_main", json.dumps(converter.unstructure(request)), str(_DEADLINE_S + 5))
    environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(request.threads))}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_DEADLINE_S,
            check=False,
            start_new_session=True,  # a terminal's interrupt is for this process
            env=environment,
        )
        if done.returncode:
            lines = done.stderr.decode(errors="replace").split("\n")
            said = next((line.strip() for line in reversed(lines) if line.strip()), "nothing")
            return Unsupported(f"the process that measures them ended with {done.returncode} and said {said}")
        answer: NumpyAnswer = converter.structure(json.loads(done.stdout), NumpyAnswer)
    except subprocess.TimeoutExpired:
        return Unsupported(f"measuring them took longer than {_DEADLINE_S} s")
    except Exception as error:  # no process, no JSON, or what cattrs raises of many types
        return Unsupported(f"the process that measures them did not answer: {error}")
    return answer
