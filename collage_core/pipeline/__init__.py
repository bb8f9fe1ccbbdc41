"""What `collage` does: the only package that knows all the others."""

from collage_core.pipeline.doctor import doctor
from collage_core.pipeline.optimize import Optimized, optimize
from collage_core.pipeline.options import PRESETS, BenchOptions, OptimizeOptions, Preset

__all__ = ["PRESETS", "BenchOptions", "OptimizeOptions", "Optimized", "Preset", "doctor", "optimize"]
