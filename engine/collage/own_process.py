"""How a process that Collage starts for itself begins: `python -m collage.own_process MODULE ARGUMENT ...`.

It runs a module as `python -m MODULE ARGUMENT ...` does, but for what is slow to import and hardly ever used.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType

_LATE = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
"""onnx_ir imports SymPy, half a second and half of what a worker imports, for dimensions that are computed with. The
second one uses the first while it is imported."""


class _LateFinder(importlib.abc.MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in _LATE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = importlib.util.LazyLoader(spec.loader)
        return spec


def own_command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module in a process of Collage's own.

    Args:
        module: Its full name; the folder the user is in is not looked for it.
        *arguments: The module's.
    """
    return [sys.executable, "-P", "-m", __name__, module, *arguments]


def import_sympy_late() -> None:
    """Has SymPy loaded when something of it is first used, in place of when it is imported.

    For processes that are Collage's own: whoever imports SymPy there gets it so.
    """
    if not any(isinstance(finder, _LateFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LateFinder())


def main() -> None:
    """Runs the module that the command line names."""
    import_sympy_late()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
