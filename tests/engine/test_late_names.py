"""What is imported when it is used is what is promised, and no module of the package hides it."""

from __future__ import annotations

import importlib
import types
from pathlib import Path

import pytest

PACKAGES = ["collage.reference", "collage_testing.kit"]


@pytest.mark.parametrize("name", PACKAGES)
def test_every_name_is_there_and_is_no_module(name: str) -> None:
    package = importlib.import_module(name)
    for path in Path(package.__path__[0]).glob("[a-z]*.py"):
        importlib.import_module(f"{name}.{path.stem}")  # as whoever looks for doctests does

    assert [each for each in package.__all__ if isinstance(getattr(package, each), types.ModuleType)] == []


@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_name_is_there(name: str) -> None:
    package = importlib.import_module(name)

    with pytest.raises(AttributeError, match=rf"module '{name}' has no attribute 'nonsense'"):
        _ = package.nonsense
