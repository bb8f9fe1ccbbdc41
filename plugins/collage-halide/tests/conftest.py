"""The plugin, and one way to lower, load and run what tests write."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.contract import Target
from collage_halide.plugin import plugin
from collage_testing.kit.host_kernels import HostKernels


@pytest.fixture
def kernels(tmp_path: Path) -> HostKernels:
    """Kernels for two threads, so that loops run in parallel wherever they are worth it."""
    return HostKernels(plugin, Target(toolchain="halide", fingerprint="test"), tmp_path, threads=2)
