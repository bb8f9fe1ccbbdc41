"""Record the calls made to a device, from a fake device's log or NVIDIA's CUPTI, and tell which of them wait.

CUPTI's callback API (cupti_callbacks.h; CUPTI documentation, "Callback API") reports every call of the CUDA
driver in this process, whichever library makes it: CuPy, cuBLASLt through the runtime, or a kernel's own
launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from collage_core.errors import DeviceError, DeviceUnavailableError
from collage_testing.kit.fake_hardware import FakeHardware

_DRIVER_API = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_ENTER = 0  # CUPTI_API_ENTER
_UNASKED = ("ran", "free", "event")  # of a fake device's log: what it did by itself, and what is free of charge

_WAITS = re.compile(
    r"synchronise|pageable"  # a fake device
    r"|.*Synchronize"
    # copies and fills without a stream wait, as does giving and taking memory (CUDA Driver API, "API synchronization")
    r"|cuMem(cpy|set|Alloc|Free)(?!.*Async)"
    r"|cu(Module|Library)(Load|Unload)"
)
_LAUNCHES = re.compile(r"kernel|launch|cuLaunchKernel|cuGraphLaunch")
_GRAPHS = re.compile(r"launch|cuGraphLaunch")
_COPIES = re.compile(r"write|read|cuMemcpy")


def waits(calls: Sequence[str]) -> list[int]:
    """Return the positions of the calls in which the host waits for the device."""
    return [place for place, call in enumerate(calls) if _WAITS.match(call)]


def launches(calls: Sequence[str]) -> list[str]:
    """Return the kind of each launch: `graph` or `kernel`."""
    return ["graph" if _GRAPHS.match(call) else "kernel" for call in calls if _LAUNCHES.match(call)]


def last_work(calls: Sequence[str]) -> int:
    """Place of the last call that gives the device something to do.

    Raises:
        ValueError: If none does.
    """
    return max(place for place, call in enumerate(calls) if _LAUNCHES.match(call) or _COPIES.match(call))


@contextlib.contextmanager
def logged(device: FakeHardware) -> Iterator[list[str]]:
    """Record the requests to a fake device in the block: kinds of `Operation`, filled in on exit."""
    calls: list[str] = []
    before = len(device.log)
    yield calls
    calls += [each.kind for each in device.log[before:] if each.kind not in _UNASKED]


class CallbackData(ctypes.Structure):
    """`CUptiCallbackData`."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("parameters", ctypes.c_void_p),
        ("result", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("context", ctypes.c_void_p),
        ("context_uid", ctypes.c_uint32),
        ("correlation_data", ctypes.POINTER(ctypes.c_uint64)),
        ("correlation_id", ctypes.c_uint32),
    )


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(CallbackData))


def cupti() -> ctypes.CDLL:
    """Load CUPTI from the wheel `nvidia-cuda-cupti` (for CUDA 12 `-cu12`), which PyTorch brings, or a toolkit.

    Raises:
        DeviceUnavailableError: If it is not found.
    """
    found = importlib.util.find_spec("nvidia")
    folders = [Path(each) for each in (found.submodule_search_locations or ())] if found else []
    wheels = [path for each in folders for path in sorted(each.glob("*/lib/libcupti.so.1[23]*"))]
    toolkit = sorted(Path("/usr/local").glob("cuda*/extras/CUPTI/lib64/libcupti.so.1[23]"))
    problems = []
    for path in [*wheels, *toolkit, "libcupti.so.13", "libcupti.so.12"]:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            problems.append(str(error))
    reason = f"CUPTI, which traces calls of the driver, cannot be loaded ({problems[0]})"
    raise DeviceUnavailableError("cuda", reason, "Install nvidia-cuda-cupti")


@contextlib.contextmanager
def traced() -> Iterator[list[str]]:
    """Record the names of the driver functions called in the block, in order, from any thread.

    Raises:
        DeviceUnavailableError: If CUPTI is not found.
        DeviceError: If CUPTI fails.
    """
    library = cupti()
    calls: list[str] = []

    def called(_: object, domain: int, number: int, data: ctypes._Pointer[CallbackData]) -> None:
        if data.contents.site == _ENTER:
            calls.append((data.contents.function or b"").decode())

    callback = _Callback(called)  # kept until it is unsubscribed
    subscriber = ctypes.c_void_p()
    _check(library, library.cuptiSubscribe(ctypes.byref(subscriber), callback, None))
    try:
        _check(library, library.cuptiEnableDomain(ctypes.c_uint32(1), subscriber, _DRIVER_API))
        yield calls
    finally:
        _check(library, library.cuptiUnsubscribe(subscriber))


def _check(library: ctypes.CDLL, status: int) -> None:
    text = ctypes.c_char_p()
    if status:
        library.cuptiGetResultString(status, ctypes.byref(text))
        raise DeviceError("cuda", f"CUPTI failed with {status}: {(text.value or b'unknown').decode()}")
