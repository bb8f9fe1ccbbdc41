"""Names of a package that are imported when they are first used (PEP 562), so that who needs one pays for no other."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def late_names(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose `__init__` imports these names for type checkers only.

    No name may be that of a module of the package: importing the module would put it in the name's place.

    Args:
        package: Its full name.
        modules: By name, the module inside the package that has it.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get
