"""Tests that need a GPU are skipped with the reason where there is none, or not what they need besides."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable

import pytest


def why_not(modules: Iterable[str]) -> str:
    """Why a test cannot be run here that needs a GPU and some modules; empty if it can."""
    from collage_core.contract import Host

    if Host.this().device("cuda:0") is None:
        return "needs an NVIDIA GPU: the driver's management library shows none, or there is no driver"
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return f"needs {', '.join(missing)}, not installed beside this Python" if missing else ""


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Looks at `pytest.mark.gpu("module", ...)` before anything of the test is made."""
    for marker in item.iter_markers("gpu"):
        if reason := why_not(marker.args):
            pytest.skip(reason)
