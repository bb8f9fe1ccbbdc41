"""Run a plugin's Python code in the driver, so that its errors and hangs affect that plugin only.

Code that runs in the driver is pure Python by contract. Its failures become a `PluginError`: an exception, `sys.exit`,
a result of another type, and, in the main thread of a system that has interval timers, a hang. What it does to the
process itself is up to the guards that the application sets, see `plugin_guards`: core reads no machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TypeVar

from collage_core.contract import Supported, Unsupported
from collage_core.error_text import one_line
from collage_core.errors import DeadlineExceededError, PluginError, ProcessDamagedError
from collage_core.patterns import FusionPattern, Match, PatternTable
from collage_core.patterns.table import AttrsGetter, Check, Predicate
from collage_core.plugin_guards import guarded

HOOK_LIMIT_S = 60.0
"""Time limit in seconds for importing a plugin, or for one hook, in the driver."""
RULE_LIMIT_S = 300.0
"""Time limit in seconds for finding the candidates of one target, predicates included.

Most of the time is spent in core.
"""

_AGAIN_S = 1.0
"""Interval in seconds after which the interruption is repeated, since a catch-all handler may have caught it."""

A = TypeVar("A")
R = TypeVar("R")


class _Overrun(BaseException):
    """Interrupts code that takes too long; not an `Exception`, because plugins catch those."""


class _Interruption:
    """Signal handler of a time limit.

    Attributes:
        counts: Whether the block still runs.
    """

    def __init__(self) -> None:
        self.counts = True

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.counts:
            raise _Overrun


@contextlib.contextmanager
def time_limit(seconds: float, what: str, *, again_s: float | None = None) -> Iterator[Callable[[float], None]]:
    """Interrupt a block of Python code that exceeds a time limit.

    The block gets a function that leaves it at least some seconds from then on, or as many as a time limit around this
    one leaves. It has no effect inside of another time limit of the block.

    The limit applies only in the main thread of a system with interval timers; elsewhere the block runs without
    a limit. A timer that is already set is restored afterwards with its remaining time. A time limit
    around this one that passes first ends both blocks; any other timer that would fire inside the block fires after it.

    Args:
        seconds: The limit.
        what: Name of the work, for the error.
        again_s: Seconds after which the interruption is repeated, long enough for the block to clean up; `_AGAIN_S` if
            None.

    Raises:
        DeadlineExceededError: If the limit passes.
    """
    again_s = _AGAIN_S if again_s is None else again_s
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield lambda least_s: None
        return
    interruption = _Interruption()
    before = signal.signal(signal.SIGALRM, interruption)
    began = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, again_s)
    is_outer_first = isinstance(before, _Interruption) and 0 < left < seconds
    if is_outer_first:
        signal.setitimer(signal.ITIMER_REAL, left, again_s)
    is_outer_due = False

    def leave(least_s: float) -> None:
        nonlocal is_outer_first
        if signal.getsignal(signal.SIGALRM) is not interruption or is_outer_first:
            return
        now, _ = signal.getitimer(signal.ITIMER_REAL)
        until = max(now, least_s)
        if isinstance(before, _Interruption) and left:
            outer = max(left - (time.monotonic() - began), 1e-3)
            is_outer_first, until = outer < until, min(outer, until)
        signal.setitimer(signal.ITIMER_REAL, until, again_s)

    try:
        try:
            yield leave
        finally:
            interruption.counts = False
    except _Overrun as overrun:
        interruption.counts = False
        if is_outer_first:
            is_outer_due = True
            raise
        raise DeadlineExceededError(what, seconds) from overrun
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL if before is None else before)  # None: not Python's own
        if left:
            rest = interval if is_outer_due else left - (time.monotonic() - began)
            signal.setitimer(signal.ITIMER_REAL, max(rest, 1e-3), interval)


def in_driver(toolchain: str, hook: str, call: Callable[[], R], *, limit_s: float | None = None) -> R:
    """Call a plugin's code.

    Args:
        toolchain: Name of the plugin's toolchain.
        hook: Name of the hook the code belongs to, or `"import"`.
        call: The code.
        limit_s: Time limit in seconds; `HOOK_LIMIT_S` if None.

    Raises:
        PluginError: If the code raises anything but the user's interrupt, or exceeds the limit. Not if a time limit
            around the call ends it.
        ProcessDamagedError: If a guard finds that the process cannot go on.
    """
    try:
        return in_time(toolchain, hook, call, limit_s=HOOK_LIMIT_S if limit_s is None else limit_s)
    except (PluginError, ProcessDamagedError, KeyboardInterrupt, _Overrun):  # the last of a limit around this call
        raise
    except BaseException as error:
        raise PluginError(toolchain, hook, one_line(error)) from error


def in_time(toolchain: str, hook: str, call: Callable[[], R], *, limit_s: float) -> R:
    """Call core code that may call a plugin's; only a hang is attributed to the plugin.

    Raises:
        PluginError: If the call exceeds the limit; the message says where it was.
    """
    try:
        with guarded(toolchain, hook), time_limit(limit_s, hook):
            return call()
    except DeadlineExceededError as error:
        if not isinstance(error.__cause__, _Overrun):
            raise
        reason = f"it did not finish within {limit_s:g} s and was interrupted{_where(error.__cause__)}"
        raise PluginError(toolchain, hook, reason) from error


def _where(overrun: _Overrun) -> str:
    """Describe where the code was interrupted; the innermost frame is the interruption's own and is skipped."""
    frames = traceback.extract_tb(overrun.__traceback__)[:-1]
    return f" in {frames[-1].name} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def guarded_table(table: PatternTable) -> PatternTable:
    """Wrap a table so that failing predicates, checks and attribute getters refuse the node.

    A function fails if it raises or returns a value of another type; the refusal gives this as the reason.
    """
    guarded = PatternTable()
    for entry in table.patterns:
        guarded.add(dataclasses.replace(entry, check=_guarded_check(entry)))
    for op, predicate in table.predicates.items():
        guarded.predicate(op, _guarded_predicate(op, predicate))
    return guarded


def _guarded_predicate(op: str, predicate: Predicate) -> Predicate:
    return lambda node: _answer(f"predicate of {op!r}", predicate, node)


def _guarded_check(entry: FusionPattern) -> Check | None:
    """Wrap the check; with an attribute getter, also refuse matches on which the getter fails."""
    check, getter = entry.check, entry.attrs_getter
    if check is None and getter is None:
        return None

    def guarded(match: Match) -> Supported | Unsupported:
        answer: Supported | Unsupported = Supported()
        if check is not None:
            answer = _answer(f"check of pattern {entry.name!r}", check, match)
        if answer and getter is not None:
            answer = _attributes(f"attrs_getter of pattern {entry.name!r}", getter, match)
        return answer

    return guarded


def _attributes(what: str, getter: AttrsGetter, match: Match) -> Supported | Unsupported:
    try:
        given: object = _called(getter, match)
    except (Exception, SystemExit) as error:
        return Unsupported(f"its {what} failed: {one_line(error)}")
    if isinstance(given, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in given.items()):
        return Supported()
    return Unsupported(f"its {what} answered with {type(given).__name__}, not a mapping of strings to strings")


def _answer(what: str, function: Callable[[A], object], about: A) -> Supported | Unsupported:
    try:
        answer = _called(function, about)
    except (Exception, SystemExit) as error:
        return Unsupported(f"its {what} failed: {one_line(error)}")
    if isinstance(answer, Supported | Unsupported):
        return answer
    return Unsupported(f"its {what} answered with {type(answer).__name__}, not Supported or Unsupported")


def _called(function: Callable[[A], object], about: A) -> object:
    """Call a table's function, and restore at once what core's own search for matches depends on.

    Raises:
        RuntimeError: If the function changed it.
    """
    limit = sys.getrecursionlimit()
    try:
        answer = function(about)
    except BaseException:
        sys.setrecursionlimit(limit)
        raise
    if sys.getrecursionlimit() != limit:
        sys.setrecursionlimit(limit)
        raise RuntimeError("it changed the recursion limit")
    return answer


_FAULT = re.compile(r"\bits (predicate|check|attrs_getter) of [^:]* (failed: |answered with )")


def is_fault(reason: str) -> bool:
    """Return whether a refusal comes from a failure of a guarded table's function, not from its answer.

    Examples:
        >>> is_fault("its predicate of 'Conv' failed: KeyError: 'axis'"), is_fault("k=30 is not a multiple of 8")
        (True, False)
    """
    return _FAULT.search(reason) is not None
