"""Where candidates are measured: on this machine one after another, or on several at once."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Generator, Iterable
from typing import Protocol, TypeVar

from collage.measure.wire.messages import AskMeasure
from collage.measure.wire.outcomes import Outcome

A = TypeVar("A")
B = TypeVar("B")


class Measurer(Protocol):
    """Measures candidates. As many threads may ask at once as it is wide."""

    @property
    def width(self) -> int:
        """Candidates that are measured at once, without one slowing another."""

    @property
    def is_here(self) -> bool:
        """Whether a candidate that takes down the machine takes this process with it."""

    def measure(self, ask: AskMeasure) -> Outcome:
        """Build, check and time a candidate."""


def side_by_side(items: Iterable[A], work: Callable[[A], B], width: int) -> Generator[tuple[A, B]]:
    """Yield each item with what some work makes of it, as it is done; the next item is taken when there is room for it.

    Args:
        items: The items; taken on the calling thread.
        work: The work; run on another thread if there is room for several. What it raises ends everything.
        width: Items that are worked on at once.

    Examples:
        >>> list(side_by_side([1, 2], lambda item: item + 1, 1))
        [(1, 2), (2, 3)]
    """
    if width == 1:
        for item in items:
            yield item, work(item)
        return
    threads = concurrent.futures.ThreadPoolExecutor(width, "side-by-side")
    running: dict[concurrent.futures.Future[B], A] = {}
    waiting = iter(items)
    more = True
    try:
        while more or running:
            while more and len(running) < width:
                try:
                    item = next(waiting)
                except StopIteration:
                    more = False
                else:
                    running[threads.submit(work, item)] = item
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in done:
                yield running.pop(future), future.result()
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
