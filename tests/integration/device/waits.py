"""What a run asks of a device, call by call: of a fake one by its log, of NVIDIA's by CUPTI.

CUPTI's callback API (cupti_callbacks.h; CUPTI documentation, "Callback API") reports every call of the CUDA driver in
this process, whichever library makes it: CuPy, cuBLASLt over the runtime, or a kernel's own launcher.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collage_core.testing import FakeDevice

_DRIVER_API = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_ENTER = 0  # CUPTI_API_ENTER

_WAITS = re.compile(
    r"synchronise|pageable"  # a fake device
    r"|.*Synchronize"
    # copies and fills without a stream wait, as does giving and taking memory (CUDA Driver API, "API synchronization")
    r"|cuMem(cpy|set|Alloc|Free)(?!.*Async)"
    r"|cu(Module|Library)(Load|Unload)"
)
_LAUNCHES = re.compile(r"kernel|launch|cuLaunchKernel|cuGraphLaunch")
_EMULATED = re.compile(r"cublasLt|cudnn|eng")  # as emulations of libraries log what they enqueue
_GRAPHS = re.compile(r"launch|cuGraphLaunch")
_COPIES = re.compile(r"write|read|cuMemcpy")


def waits(calls: list[str]) -> list[int]:
    """Places of the calls in which the host waits for the device."""
    return [place for place, call in enumerate(calls) if _WAITS.match(call)]


def launches(calls: list[str]) -> list[str]:
    """How each launch was made: `graph` or `kernel`."""
    return ["graph" if _GRAPHS.match(call) else "kernel" for call in calls if _LAUNCHES.match(call)]


def last_work(calls: list[str]) -> int:
    """Place of the last call that gives the device something to do."""
    return max(place for place, call in enumerate(calls) if _LAUNCHES.match(call) or _COPIES.match(call))


@contextlib.contextmanager
def logged(device: FakeDevice) -> Iterator[list[str]]:
    """What is asked of a fake device in the block."""
    calls: list[str] = []
    before = len(device.log)
    yield calls
    kinds = [each.kind for each in device.log[before:] if each.kind not in ("ran", "free", "event")]
    calls += ["kernel" if _EMULATED.match(kind) else kind for kind in kinds]


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
    """The library: of the wheel `nvidia-cuda-cupti` (of CUDA 12 `-cu12`), which PyTorch brings, or of a toolkit."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(each) for each in (found.submodule_search_locations or ()) if found] if found else []
    wheels = [path for each in folders for path in sorted(each.glob("*/lib/libcupti.so.1[23]*"))]
    toolkit = sorted(Path("/usr/local").glob("cuda*/extras/CUPTI/lib64/libcupti.so.1[23]"))
    problems = []
    for path in [*wheels, *toolkit, "libcupti.so.13", "libcupti.so.12"]:
        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            problems.append(str(error))
    pytest.skip(f"CUPTI, which traces calls of the driver, is not installed ({problems[0]}): nvidia-cuda-cupti")


@contextlib.contextmanager
def traced() -> Iterator[list[str]]:
    """Names of the driver's functions called in the block, in order, by whichever thread."""
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
        pytest.fail(f"CUPTI failed with {status}: {(text.value or b'unknown').decode()}")
