"""Import names of a package on first use (PEP 562), so that a user of one name does not pay for the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Build the `__getattr__` of a package whose `__init__` imports these names for type checkers only.

    No name may equal that of a module of the package: importing the module would overwrite the attribute.

    Args:
        package: Full name of the package.
        modules: Maps each name to the module inside the package that defines it.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
