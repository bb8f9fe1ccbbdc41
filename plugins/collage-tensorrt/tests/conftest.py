"""TensorRT for RTX where it is installed, and as emulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collage_core.contract import BuildContext
from collage_tensorrt.editions import RTX

from .emulated import Library
from .machine import build_context


@pytest.fixture(scope="session")
def rtx() -> Any:
    """The library, which imports models and builds engines without a GPU."""
    try:
        return RTX.find()
    except ImportError as error:
        pytest.skip(f"TensorRT for RTX is not installed: {error}")


@pytest.fixture(params=["emulated", "library"])
def library(request: pytest.FixtureRequest) -> Any:
    return Library(rtx=True) if request.param == "emulated" else request.getfixturevalue("rtx")


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path)
