"""What `collage` does: the only package that knows all the others.

Its names are imported when they are first used, so that a process that only runs a package imports no search.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collage_core.pipeline.benchmark import bench
    from collage_core.pipeline.comparison import compare
    from collage_core.pipeline.diagnosis import doctor
    from collage_core.pipeline.inspection import inspect
    from collage_core.pipeline.loading import load
    from collage_core.pipeline.optimization import Optimized, optimize
    from collage_core.pipeline.options import PRESETS, BenchOptions, OptimizeOptions, Preset

__all__ = [
    "PRESETS",
    "BenchOptions",
    "OptimizeOptions",
    "Optimized",
    "Preset",
    "bench",
    "compare",
    "doctor",
    "inspect",
    "load",
    "optimize",
]

_MODULES = {
    "BenchOptions": "options",
    "OptimizeOptions": "options",
    "Optimized": "optimization",
    "PRESETS": "options",
    "Preset": "options",
    "bench": "benchmark",
    "compare": "comparison",
    "doctor": "diagnosis",
    "inspect": "inspection",
    "load": "loading",
    "optimize": "optimization",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
