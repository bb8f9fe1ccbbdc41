"""Two toolchains that compute as the reference does: one is slow, the other fast and wrong as `cases.py` says."""

from __future__ import annotations

import ctypes
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from collage.reference.plugin import ReferencePlugin
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from tests.integration.wrong_kernels.cases import Case, cases

_SLOW_S: Final = 0.002
_LATE_S: Final = 0.005


@functools.cache
def _known() -> Mapping[str, Case]:
    return {case.name: case for case in cases()}


class _Toolchain:
    """What both have in common."""

    name = ""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target]:
        return [Target(toolchain=self.name, fingerprint="1", joins=Joins.NONE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        table.predicate("*", lambda node: Supported())

    @hookimpl
    def collage_lower(self, target: Target, function: KernelFunction) -> Iterator[Artifact]:
        for artifact in ReferencePlugin().collage_lower(function):
            yield Artifact(files=artifact.files, metadata={"case": function.outputs[0].name})


class Honest(_Toolchain):
    """Right, and slow."""

    name = "honest"

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        return _Slow(ReferencePlugin().collage_load(artifact, run))


class Wrong(_Toolchain):
    """Fast, and wrong."""

    name = "wrong"

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel:
        kernel = ReferencePlugin().collage_load(artifact, run)
        return WrongKernel(kernel, _known()[str(artifact.metadata["case"])], run.threads)


class _Slow:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        call = self._kernel.bind(inputs, outputs, workspace)

        def slow() -> None:
            call()
            time.sleep(_SLOW_S)

        return slow


class WrongKernel:
    """A kernel that computes as another does, and then is wrong.

    Args:
        kernel: The other.
        case: How it is wrong.
        threads: Threads that it is loaded for.
    """

    def __init__(self, kernel: Kernel, case: Case, threads: int) -> None:
        self._kernel = kernel
        self._case = case
        self._threads = threads
        self._calls = 0
        self._home: tuple[int, int] | None = None

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        right = self._kernel.bind(inputs, outputs, workspace)
        [x], [y] = inputs, outputs
        misdeed: Callable[..., None] = getattr(self, "_" + self._case.family.replace("-", "_"))
        kept: list[np.ndarray[Any, Any]] = []
        if self._case.family == "stale-input" and self._case.way == 0:
            right()
            kept.append(self._row(y.array).copy())

        def call() -> None:
            self._calls += 1
            before = y.array.copy() if self._case.family == "late-write" else y.array
            right()
            if self._case.family == "late-write":
                misdeed(y.array, before)
            elif self._case.family == "stale-input":
                misdeed(y.array, kept)
            else:
                misdeed(x.array, y.array)

        return call

    def _row(self, y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the row with the case's element."""
        row: np.ndarray[Any, Any] = y[self._element(y) // y.shape[1]]
        return row

    def _element(self, y: np.ndarray[Any, Any], fit: np.ndarray[Any, Any] | None = None) -> int:
        """Return the index of the case's element, among those that fit."""
        finite = np.isfinite(y) & (y != 0) if self._case.dtype in ("float32", "float16") else np.ones(y.shape, bool)
        return self._case.element(finite if fit is None else finite & fit)

    def _spoil(self, y: np.ndarray[Any, Any], at: int | np.ndarray[Any, Any]) -> None:
        """Make elements wrong."""
        flat = y.reshape(-1)
        if y.dtype == bool:
            flat[at] = ~flat[at]
        elif y.dtype.kind == "i":
            flat[at] += 1
        else:
            flat[at] *= 1 + self._case.off

    def _position(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        self._spoil(y, self._element(y))

    def _call_number(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        if self._calls > self._case.after:
            self._spoil(y, self._element(y))

    def _thread_count(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        """Like a race of two threads, which one of them loses every other time."""
        if self._threads > 1 and (self._case.way == 0 or self._calls % 2 == 0):
            self._spoil(y, self._element(y))

    def _buffer_identity(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        """Right in the first memory it sees only, of its input or of its output."""
        place = (x if self._case.way == 0 else y).ctypes.data
        self._home = self._home or (place, place)
        if self._home[0] != place:
            self._spoil(y, self._element(y))

    def _aliasing(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        """Write an element before the output, behind the input or behind the output."""
        place = {
            "first": y.ctypes.data - y.itemsize,
            "middle": x.ctypes.data + x.nbytes,
            "last": y.ctypes.data + y.nbytes,
        }[self._case.position]
        ctypes.memset(place, 0x5A, y.itemsize)

    def _stale_input(self, y: np.ndarray[Any, Any], kept: list[np.ndarray[Any, Any]]) -> None:
        """Give a row that was computed before: when it was bound, or at the first call."""
        kept[:] = kept or [self._row(y).copy()]
        self._row(y)[...] = kept[0]

    def _late_write(self, y: np.ndarray[Any, Any], before: np.ndarray[Any, Any]) -> None:
        """Write an element after the call: the right value, or a wrong one over the right one."""
        at = self._element(y)
        right = y.reshape(-1)[at]
        if self._case.way == 0:
            y.reshape(-1)[at] = before.reshape(-1)[at]

        def write() -> None:
            time.sleep(_LATE_S)
            y.reshape(-1)[at] = right
            if self._case.way == 1:
                self._spoil(y, at)

        threading.Thread(target=write, daemon=True).start()

    def _nan(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        """Swallow a NaN, or make one."""
        flat = y.reshape(-1)
        if self._case.way == 0:
            flat[self._case.element(np.isnan(y))] = 0
        else:
            flat[self._case.element(np.isfinite(y))] = np.nan if self._case.position == "middle" else np.inf

    def _mask(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        self._spoil(y, self._element(y, np.arange(y.shape[1]) != y.shape[1] // 3))

    def _small_scale(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        self._spoil(y, self._element(y, np.arange(y.shape[1]) % 2 == 0))

    def _value_range(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        beyond = {"int64": 995, "int8": 126}.get(self._case.dtype, 2.8)
        self._spoil(y, np.flatnonzero(x > beyond))

    def _rare_integer(self, x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> None:
        if x.dtype.kind == "f":
            self._spoil(y, np.flatnonzero(y == -3))
        else:
            self._spoil(y, np.flatnonzero(x == {"int64": 777, "int8": 77}[self._case.dtype]))


honest, wrong = Honest(), Wrong()
