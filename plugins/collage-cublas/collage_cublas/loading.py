"""Find `libcublasLt`, and check that this machine's driver can run it."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from collage_cublas.library import CublasLt
from collage_cuda import OLDEST_DRIVERS, PrimaryContexts

OLDEST_VERSION = 120000
"""Oldest supported cuBLASLt, encoded as by `cublasLtGetVersion`.

12.0 has every attribute and epilogue used, with the same numbers.
"""

FOLDERS = {13: "cu13/lib", 12: "cublas/lib"}
"""Folder of the library below `nvidia` in the wheels `nvidia-cublas` and `nvidia-cublas-cu12`, by CUDA version."""


def spelt(version: int) -> str:
    """Format a version of cuBLASLt for humans (`CUBLAS_VERSION` in `cublas_api.h`).

    Examples:
        >>> spelt(130000), spelt(131002)
        ('13.0.0', '13.10.2')
    """
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def open_library(majors: tuple[int, ...] = tuple(OLDEST_DRIVERS)) -> CublasLt:
    """Load cuBLASLt: from a wheel, else from the system loader's search path.

    Args:
        majors: Major versions of CUDA to try, in this order.

    Raises:
        OSError: If none can be loaded.
    """
    problems = []
    for major in majors:
        for path in (*wheels(major), f"libcublasLt.so.{major}"):
            try:
                return CublasLt(ctypes.CDLL(str(path)), PrimaryContexts())
            except OSError as error:
                problems.append(str(error))
    raise OSError("; ".join(problems))


def wheels(major: int) -> Iterator[Path]:
    """Yield the library in NVIDIA's wheel for one major version of CUDA, if installed; nothing is imported."""
    found = importlib.util.find_spec("nvidia")
    for folder in (found.submodule_search_locations or ()) if found else ():
        path = Path(folder) / FOLDERS[major] / f"libcublasLt.so.{major}"
        if path.exists():
            yield path
