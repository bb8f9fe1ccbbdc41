"""Keep what belongs to the whole process as it is while a plugin's code runs in it.

A plugin's code in the driver is Python by contract, but nothing keeps it from changing the working directory, or from
loading a library that sets flush-to-zero when it is loaded (GCC links `crtfastmath.o` for `-ffast-math`). What was
changed is put back after every call, and a warning names the plugin. See docs/design/0030.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import dataclasses
import gc
import io
import json
import locale
import os
import platform
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from collage.errors import PluginWarning
from collage_core.errors import ProcessDamagedError
from collage_core.plugin_guards import guarded_by

_STREAMS: Final = {"stdin": (0, "r"), "stdout": (1, "w"), "stderr": (2, "w")}
"""Descriptor and mode of each standard stream."""
_MODULES: Final = (builtins, io, json, os, os.path)
_KEPT_OF_SYS: Final = ("stdin", "stdout", "stderr", "excepthook", "displayhook", "exit")
"""Of `sys`; its other attributes change for good reasons."""
_SIGNALS: Final = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGPIPE", "SIGCHLD", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
_BLOCKED: Final = -1
"""Stands for the mask of blocked signals where there are handlers by signal."""
_LIMITS: Final = ("RLIMIT_AS", "RLIMIT_CORE", "RLIMIT_CPU", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
_FENV_BYTES: Final = 64
"""More than `fenv_t` takes on any machine: 32 bytes on x86-64, 8 on AArch64."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Aspect:
    """Something that belongs to the whole process.

    Attributes:
        name: As in a warning.
        read: Returns its state, which can be compared with another.
        restore: Takes the state it is to have.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object]


def _names() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return namespaces that all code depends on, each with what its names refer to now."""
    kept = [(vars(module), dict(vars(module))) for module in _MODULES]
    kept.append((vars(sys), {name: getattr(sys, name) for name in _KEPT_OF_SYS}))
    kept.append((sys.modules, {module.__name__: module for module in (*_MODULES, sys)}))
    return kept


def _restore_names(kept: list[tuple[dict[str, Any], dict[str, Any]]]) -> bool:
    """Restore what names refer to, and return whether that had changed; names that were added do no harm.

    It calls no built-in function: those may be what was replaced.
    """
    changed = False
    for namespace, names in kept:
        if not names.items() <= namespace.items():
            changed = True
            namespace.update(names)
    return changed


def _open_streams() -> dict[str, Any]:
    """Return the standard streams that are open, by their name in `sys`."""
    streams = {name: getattr(sys, name) for name in _STREAMS}
    return {name: stream for name, stream in streams.items() if not getattr(stream, "closed", True)}


def _reopen(streams: Mapping[str, Any]) -> bool:
    """Replace those streams that were closed meanwhile, and return whether there is one."""
    closed = [name for name, stream in streams.items() if stream.closed]
    for name in closed:
        number, mode = _STREAMS[name]
        coding = {"encoding": streams[name].encoding, "errors": streams[name].errors}
        setattr(sys, name, open(number, mode, **coding, closefd=False))  # noqa: SIM115  it stays open
    return bool(closed)


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _restore_folder(folder: str | None) -> None:
    if folder is not None:
        with contextlib.suppress(OSError):
            os.chdir(folder)


def _umask() -> int | None:
    """Return the umask without setting it, which would affect files that other threads create meanwhile."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:
            return next((int(line[6:], 8) for line in status if line.startswith("Umask:")), None)
    except OSError:
        return None


def _handlers() -> dict[int, Any] | None:
    if threading.current_thread() is not threading.main_thread():
        return None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return {_BLOCKED: blocked, **{number: signal.getsignal(number) for number in _SIGNALS}}


def _restore_handlers(handlers: dict[int, Any] | None) -> None:
    for number, handler in (handlers or {}).items():
        if number == _BLOCKED:
            signal.pthread_sigmask(signal.SIG_SETMASK, handler)
        elif handler is not None:  # None: it was not installed from Python
            signal.signal(number, handler)


def _limits() -> dict[int, tuple[int, int]]:
    import resource  # Windows has none

    numbers = [getattr(resource, name) for name in _LIMITS if hasattr(resource, name)]
    return {number: resource.getrlimit(number) for number in numbers}


def _restore_limits(limits: Mapping[int, tuple[int, int]]) -> None:
    import resource

    for number, (soft, _) in limits.items():
        _, hard = resource.getrlimit(number)  # it cannot be raised again
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(number, (soft if hard == resource.RLIM_INFINITY or 0 <= soft <= hard else hard, hard))


def _restore_environment(variables: Mapping[str, str]) -> None:
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _aspects() -> Iterator[_Aspect]:
    """Yield what is kept."""
    yield _Aspect("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit)
    yield _Aspect("the working directory", _folder, _restore_folder)
    yield _Aspect("environment variables", os.environ.copy, _restore_environment)
    yield _Aspect(
        "the locale", lambda: locale.setlocale(locale.LC_ALL), lambda name: locale.setlocale(locale.LC_ALL, name)
    )
    yield _Aspect("NumPy's error handling", np.geterr, lambda kept: np.seterr(**kept))
    yield _Aspect("NumPy's print options", np.get_printoptions, lambda kept: np.set_printoptions(**kept))
    yield _Aspect("garbage collection", gc.isenabled, lambda enabled: (gc.enable if enabled else gc.disable)())
    if sys.platform == "linux":
        yield _Aspect("the umask", _umask, lambda mask: None if mask is None else os.umask(mask))
        yield _Aspect("signal handlers", _handlers, _restore_handlers)
        yield _Aspect("resource limits", _limits, _restore_limits)
        yield _Aspect("the CPU affinity", lambda: os.sched_getaffinity(0), lambda cpus: os.sched_setaffinity(0, cpus))


class _FloatingPoint:
    """Rounding mode, flush-to-zero and trapped exceptions of this thread.

    `fegetenv` and `fesetenv` of C99 (7.6.4) read and write them; what of `fenv_t` is control, and not a record of
    exceptions that occurred, is in glibc's `bits/fenv.h`.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None) if os.name == "posix" else None
        self._read = getattr(library, "fegetenv", None)
        self._write = getattr(library, "fesetenv", None)
        self._machine = platform.machine()

    def read(self) -> bytes:
        """Return the whole environment; empty where it cannot be read."""
        if self._read is None or self._write is None:
            return b""
        buffer = ctypes.create_string_buffer(_FENV_BYTES)
        self._read(buffer)
        return buffer.raw

    def restore(self, before: bytes) -> bool:
        """Restore it, and return whether what calculations depend on had changed."""
        if not before or self._write is None:
            return False
        changed = self._control(self.read()) != self._control(before)
        self._write(ctypes.create_string_buffer(before, _FENV_BYTES))
        return changed

    def _control(self, environment: bytes) -> tuple[int, ...]:
        if self._machine == "x86_64":  # the x87's control word, and MXCSR without its six sticky flags
            return (
                int.from_bytes(environment[:2], "little"),
                int.from_bytes(environment[28:32], "little") & ~0x3F,
            )
        if self._machine == "aarch64":  # FPCR
            return (int.from_bytes(environment[:4], "little"),)
        return ()


@contextlib.contextmanager
def plugins_guarded() -> Iterator[None]:
    """Have calls of plugins' code within a block, or a decorated function, leave this process as it is."""
    with guarded_by(ProcessGuard()):
        yield


class ProcessGuard:
    """Restores what a plugin's code changes of this process; see `collage_core.plugin_guards.guarded_by`.

    Warns once of each kind of change by each plugin. What the code prints goes to standard error.
    """

    def __init__(self) -> None:
        self._aspects = tuple(_aspects())
        self._floating_point = _FloatingPoint()
        self._told: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def __call__(self, toolchain: str, hook: str) -> Iterator[None]:
        """Surround one call.

        Raises:
            ProcessDamagedError: If the code closed files that are not its own, so that the next ones opened take
                their numbers: who writes to the old ones then writes to the new.
        """
        changes: list[str] = []
        threads, streams = set(threading.enumerate()), _open_streams()
        try:
            with contextlib.redirect_stdout(sys.stderr):  # standard output may carry the command's JSON
                yield from self._kept(toolchain, hook, changes)
        finally:
            if _reopen(streams):
                changes.append("whether standard streams are open")
        left = [thread.name for thread in set(threading.enumerate()) - threads if not thread.daemon]
        self._tell(toolchain, hook, changes, left)

    def _kept(self, toolchain: str, hook: str, changes: list[str]) -> Iterator[None]:
        names, floating_point = _names(), self._floating_point.read()
        before = [aspect.read() for aspect in self._aspects]
        process = os.getpid()
        with _Descriptors() as descriptors, warnings.catch_warnings():
            try:
                yield
            finally:
                if _restore_names(names):
                    changes.append("built-in functions or standard streams")
                if os.getpid() != process:
                    _end_copy(toolchain, hook)
                if self._floating_point.restore(floating_point):
                    changes.append("how this processor rounds")
                for aspect, state in zip(self._aspects, before, strict=True):
                    if aspect.read() != state:
                        aspect.restore(state)
                        changes.append(aspect.name)
                if descriptors.restored():
                    changes.append("where standard streams lead")
            if descriptors.closed:
                raise ProcessDamagedError(toolchain, hook, "closed files that are not its own")

    def _tell(self, toolchain: str, hook: str, changes: list[str], threads: list[str]) -> None:
        new = [each for each in changes if (toolchain, each) not in self._told]
        self._told.update((toolchain, each) for each in new)
        if new:
            text = f"toolchain {toolchain!r} changed {', '.join(new)} of this process in {hook}; that was undone"
            warnings.warn(text, PluginWarning, stacklevel=2)
        if threads and (toolchain, "threads") not in self._told:
            self._told.add((toolchain, "threads"))
            text = f"toolchain {toolchain!r} started thread {threads[0]!r} in {hook}; nobody waits for its end"
            warnings.warn(text, PluginWarning, stacklevel=2)


class _Descriptors:
    """Duplicates of the standard descriptors, by which they are restored.

    Nobody else knows the duplicates. If they are gone, their numbers were closed blindly, and other files with them.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[int, os.stat_result]] = {}
        self.closed = False

    def __enter__(self) -> _Descriptors:
        for number, _ in _STREAMS.values():
            with contextlib.suppress(OSError):  # it was closed before
                self._copies[number] = (os.dup(number), os.fstat(number))
        return self

    def __exit__(self, *_: object) -> None:
        for copy, known in self._copies.values():
            if _is(copy, known):  # otherwise it was closed, and its number may be somebody else's by now
                with contextlib.suppress(OSError):
                    os.close(copy)

    def restored(self) -> bool:
        """Restore the standard descriptors, and return whether one had changed."""
        changed = False
        for number, (copy, known) in self._copies.items():
            if not _is(copy, known):
                self.closed = True
            elif not _is(number, known):
                changed = True
                os.dup2(copy, number)
        return changed


def _is(descriptor: int, known: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), known)
    except OSError:
        return False


def _end_copy(toolchain: str, hook: str) -> None:
    """End this process, a copy made by `fork` that would run the rest of the program a second time."""
    text = f"Warning: toolchain {toolchain!r} forked this process in {hook}, and the copy came back; the copy ends\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode())
    os._exit(1)
