"""What `collage` does: the only package that knows all the others."""

from collage_core.pipeline.bench import bench
from collage_core.pipeline.compare import compare
from collage_core.pipeline.doctor import doctor
from collage_core.pipeline.inspect import inspect
from collage_core.pipeline.load import load
from collage_core.pipeline.optimize import Optimized, optimize
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
