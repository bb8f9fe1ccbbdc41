"""Entry point of the processes Collage starts for itself: `python -m collage.own_process MODULE ARGUMENT ...`.

It runs a module as `python -m MODULE ARGUMENT ...` does, but defers imports that are slow and rarely needed.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import runpy
import sys
from collections.abc import MutableMapping, Sequence
from types import ModuleType

_LATE = frozenset({"sympy", "onnx_ir._symbolic_shapes"})
"""Modules that are imported lazily.

onnx_ir imports SymPy for symbolic dimensions, which takes half a second, half of a worker's import time. The second
module uses the first during its own import.
"""

_SPINNING = ("OPENBLAS_THREAD_TIMEOUT", "18")
"""Limit on how long idle threads of OpenBLAS spin for work before they sleep: 2**18 of the processor's ticks, 0.1 ms.

By default they spin for longer than NumPy's import takes: 0.1 s of another processor for the import, 0.25 s for the
start of a worker, measured on two cores, beside whatever is timed there. With 2**22, 2 ms, the reference's run over
BERT took 1.5 s of the processors for 1.2 s of work. The variable is described in
http://www.openmathlib.org/OpenBLAS/docs/runtime_variables/.
"""


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
    """Return the command line that runs a module in one of Collage's own processes.

    Args:
        module: Full name of the module; the user's current folder is not on its search path.
        *arguments: Arguments of the module.
    """
    return [sys.executable, "-P", "-m", __name__, module, *arguments]


def import_sympy_late() -> None:
    """Defer the loading of SymPy from its import to the first use of one of its attributes.

    Only for Collage's own processes, because every import of SymPy in the process is affected.
    """
    if not any(isinstance(finder, _LateFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LateFinder())


def limit_spinning(environment: MutableMapping[str, str] = os.environ) -> None:
    """Bound how long idle threads of NumPy's library spin for work, unless the user did; before NumPy is imported.

    Args:
        environment: Variables of the process that imports it.
    """
    environment.setdefault(*_SPINNING)


def main() -> None:
    """Run the module that the command line names."""
    import_sympy_late()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
