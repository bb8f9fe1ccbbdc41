"""The library `halide`, imported when something of it is first used: a driver reads this plugin's tables without it."""

from __future__ import annotations

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(importlib.import_module("halide"), name)
