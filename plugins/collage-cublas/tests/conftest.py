"""What the tests share: descriptors noted down or real, and how a kernel is to be built."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from collage_core.contract import BuildContext
from collage_cublas.library import CublasLt, Descriptors
from collage_cublas.loading import wheels
from collage_cuda import PrimaryContexts
from collage_testing.kit import build_context
from collage_testing.kit.gpu_plugins import HOST

from .emulator import Notes


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The library of the wheel `nvidia-cublas`, which needs no GPU to be loaded; it is too large to be a dependency."""
    path = next(wheels(13), None)
    if path is None:
        pytest.skip("nvidia-cublas is not installed")
    return path


@pytest.fixture(scope="session")
def library(wheel: Path) -> CublasLt:
    return CublasLt(ctypes.CDLL(str(wheel)), PrimaryContexts())


@pytest.fixture(params=["notes", "library"])
def descriptors(request: pytest.FixtureRequest) -> Descriptors:
    """Descriptors noted down, and those of the real library, which are in the CPU's memory."""
    return Notes() if request.param == "notes" else request.getfixturevalue("library")


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, max_variants=3, host=HOST)
