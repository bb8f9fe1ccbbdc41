"""Measure memory and NumPy's products, in a process of its own: `python -m collage.peaks.numpy_main REQUEST SECONDS`.

The request and the answer, on standard output, are JSON. Threads of BLAS that this starts end with the process, before
anything else is timed.

Memory is measured by `a = b + c`. It moves what STREAM's triad `a = b + s*c` moves, two arrays read and one written,
and NumPy computes it in one pass; a machine that is bound by memory runs both at one speed (J. D. McCalpin, "Memory
bandwidth and machine balance in current high performance computers", 1995).
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from collage.documents.strict import strict_converter

_SAMPLES = 7
_SAMPLE_NS = 500_000
"""Nanoseconds of a sample of something short."""
_PASSES_BYTES = 128 << 20
"""Bytes that a sample of something long moves, at least one pass."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumpyRequest:
    """What to measure.

    Attributes:
        threads: Threads to measure with.
        levels: Bytes to work on for each level of memory, and whether they are those of one thread with a cache of its
            own, which is measured on one thread: the others are as fast.
        products: Element type and side of square matrices to multiply.
    """

    threads: int
    levels: tuple[tuple[int, bool], ...] = ()
    products: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NumpyAnswer:
    """What was measured, in the order of the request.

    Attributes:
        bytes_per_us: Bytes that all threads together move in a microsecond, for each level.
        products_us: Microseconds of each product.
    """

    bytes_per_us: tuple[float, ...] = ()
    products_us: tuple[float, ...] = ()


def measured(request: NumpyRequest) -> NumpyAnswer:
    """Measure in this process: the fastest of several samples each."""
    return NumpyAnswer(
        bytes_per_us=tuple(
            _own(nbytes) * request.threads if own else _shared(nbytes, request.threads)
            for nbytes, own in request.levels
        ),
        products_us=tuple(_product(dtype, side) for dtype, side in request.products),
    )


def _own(nbytes: int) -> float:
    """Return bytes per microsecond as the slope between two sizes: the call itself takes as long as a small sum."""
    sizes = (nbytes // 4, nbytes)
    times = [_fastest_us(_summing(size)) for size in sizes]
    if times[1] <= times[0]:  # disturbed
        return nbytes / times[1]
    return (sizes[1] - sizes[0]) / (times[1] - times[0])


def _shared(nbytes: int, threads: int) -> float:
    """Return bytes per microsecond of all threads, each with its own part of the working set."""
    passes = max(1, _PASSES_BYTES // nbytes)
    calls = [_summing(nbytes // threads) for _ in range(threads)]

    def run(call: Callable[[], object]) -> None:
        for _ in range(passes):
            call()

    with ThreadPoolExecutor(threads) as pool:
        fastest = min(_elapsed_ns(lambda: list(pool.map(run, calls))) for _ in range(_SAMPLES))
    return passes * nbytes * 1000 / fastest


def _product(dtype: str, side: int) -> float:
    generator = np.random.default_rng(0)
    left, right = (generator.standard_normal((side, side)).astype(dtype) for _ in range(2))
    out = np.empty_like(left)
    return min(_elapsed_ns(lambda: np.matmul(left, right, out=out)) for _ in range(_SAMPLES)) / 1000


def _summing(nbytes: int) -> Callable[[], object]:
    """Return a call that adds two arrays into a third, `nbytes` in all."""
    a, b, c = (np.full(max(1, nbytes // 12), value, np.float32) for value in (0.0, 1.0, 2.0))
    return lambda: np.add(b, c, out=a)


def _fastest_us(call: Callable[[], object]) -> float:
    """Return the microseconds of a short call: the fastest of several samples of many."""
    once = min(_elapsed_ns(call) for _ in range(_SAMPLES))
    many = max(1, _SAMPLE_NS // max(1, once))

    def repeat() -> None:
        for _ in range(many):
            call()

    return min(_elapsed_ns(repeat) for _ in range(3 * _SAMPLES)) / 1000 / many


def _elapsed_ns(call: Callable[[], Any]) -> int:
    began = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - began


def main() -> None:
    """Answer the request on the command line; end after the seconds behind it whatever happens."""
    if hasattr(signal, "alarm"):
        signal.alarm(int(sys.argv[2]))
    converter = strict_converter()
    request = converter.structure(json.loads(sys.argv[1]), NumpyRequest)
    print(json.dumps(converter.unstructure(measured(request))))


if __name__ == "__main__":
    main()
