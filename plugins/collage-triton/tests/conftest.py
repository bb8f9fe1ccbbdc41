"""One interpreter for a file's tests."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from collage_triton.interpreter import Interpreter

from .checking import Checker


@pytest.fixture(scope="session")
def interpreter() -> Iterator[Interpreter]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton, whose interpreter runs the kernels, is not installed")
    with Interpreter() as running:
        yield running


@pytest.fixture(scope="session")
def check(interpreter: Interpreter) -> Checker:
    return Checker(interpreter)
