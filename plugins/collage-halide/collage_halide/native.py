"""Compiled kernels in a process: loading them, the runtime that all of them share, and calling them.

Halide is not needed here. `HalideRuntime.h` of Halide 21 describes the structures and functions.
"""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import tempfile
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_LOADING = threading.Lock()  # of two that look for the runtime at once, one would use a copy of its own
_SONAME = re.compile(rb"collage-halide-[0-9a-f]{16}\.so")


class Dimension(ctypes.Structure):
    """`halide_dimension_t`."""

    _fields_ = (
        ("min", ctypes.c_int32),
        ("extent", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("flags", ctypes.c_uint32),
    )


class NativeBuffer(ctypes.Structure):
    """`halide_buffer_t`, with its `halide_type_t` in line."""

    _fields_ = (
        ("device", ctypes.c_uint64),
        ("device_interface", ctypes.c_void_p),
        ("host", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("dimensions", ctypes.c_int32),
        ("dim", ctypes.POINTER(Dimension)),
        ("padding", ctypes.c_void_p),
    )


def native_buffer(address: int, shape: Sequence[int], code: int, bits: int) -> NativeBuffer:
    """Describe memory to a kernel.

    Args:
        address: Where it begins.
        shape: Extents, row-major.
        code: Halide's code of the kind of type.
        bits: Its size.
    """
    dimensions = (Dimension * len(shape))()
    stride = 1
    for place, extent in enumerate(reversed(shape)):
        dimensions[place] = Dimension(0, extent, stride, 0)
        stride *= extent
    return NativeBuffer(0, None, address, 0, code, bits, 1, len(shape), dimensions, None)


def soname_of(runtime: bytes) -> str:
    """Return the name under which a runtime is loaded.

    Raises:
        ValueError: If it has none.
    """
    found = _SONAME.search(runtime)
    if found is None:
        raise ValueError("the runtime has no name")
    return found[0].decode()


def load_library(content: bytes, scratch: Path | None) -> ctypes.CDLL:
    """Load a shared library from its bytes; it is unloaded with the last reference to it.

    Args:
        content: The library.
        scratch: A folder to write in; the system's if None.

    Raises:
        OSError: If it cannot be loaded.
    """
    library = _loaded(content, scratch)
    # Not as the process ends: other threads may still be inside.
    weakref.finalize(library, _ctypes.dlclose, library._handle).atexit = False
    return library


def _loaded(content: bytes, scratch: Path | None) -> ctypes.CDLL:
    """Load a shared library for good. Its file is gone afterwards; the mapping keeps what it needs."""
    descriptor, name = tempfile.mkstemp(suffix=".so", dir=scratch)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        return ctypes.CDLL(name)
    finally:
        Path(name).unlink(missing_ok=True)


def load_runtime(content: bytes, threads: int, scratch: Path | None) -> ctypes.CDLL:
    """Load the runtime, or find it where the process has it already, and tell its thread pool how many to use.

    Errors are codes that kernels return: Halide's own handler ends the process. It is replaced by a function of the C
    library that does nothing, so no thread of the pool ever needs the interpreter.

    Args:
        content: The runtime.
        threads: Threads of the pool, the caller's included.
        scratch: See `load_library`.

    Raises:
        OSError: If it cannot be loaded.
    """
    with _LOADING:
        library = _runtime(content, scratch)
        library.halide_set_num_threads(threads)
    return library


def _runtime(content: bytes, scratch: Path | None) -> ctypes.CDLL:
    """Return the runtime that the process has, or else load it; for good, since its threads never end."""
    try:
        library = ctypes.CDLL(soname_of(content), mode=getattr(os, "RTLD_NOLOAD", 0) | os.RTLD_NOW)
    except OSError:
        ctypes.CDLL("libm.so.6", mode=os.RTLD_GLOBAL | os.RTLD_NOW)  # sin and others; kernels name no library
        library = _loaded(content, scratch)
        silent = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p)
        library.halide_set_error_handler.argtypes = (ctypes.c_void_p,)
        library.halide_set_error_handler.restype = ctypes.c_void_p
        library.halide_set_error_handler(silent)
    library.halide_set_num_threads.argtypes = (ctypes.c_int,)
    return library


def entry(library: ctypes.CDLL, name: str, arguments: int) -> Any:
    """Return a kernel's function, which takes buffers and returns 0 or an error's code."""
    function = getattr(library, name)
    function.argtypes = (ctypes.c_void_p,) * arguments
    function.restype = ctypes.c_int
    return function
