"""What `collage` does: the only package that knows all the others.

Its names are imported when they are first used, so that a process that only runs a package imports no search.
"""

from typing import TYPE_CHECKING

from collage_core.late_names import late_names

if TYPE_CHECKING:
    from collage_core.pipeline.benchmark import bench
    from collage_core.pipeline.collage_fuse_ops import CollageFuseOps
    from collage_core.pipeline.comparison import compare
    from collage_core.pipeline.diagnosis import doctor
    from collage_core.pipeline.inspection import inspect
    from collage_core.pipeline.loading import load
    from collage_core.pipeline.optimization import optimize
    from collage_core.pipeline.optimized import Optimized
    from collage_core.pipeline.options import PRESETS, BenchOptions, OptimizeOptions, Preset
    from collage_core.pipeline.partition_for import Partitioned, partition

__all__ = [
    "PRESETS",
    "BenchOptions",
    "CollageFuseOps",
    "OptimizeOptions",
    "Optimized",
    "Partitioned",
    "Preset",
    "bench",
    "compare",
    "doctor",
    "inspect",
    "load",
    "optimize",
    "partition",
]

__getattr__ = late_names(
    __name__,
    {
        "BenchOptions": "options",
        "CollageFuseOps": "collage_fuse_ops",
        "OptimizeOptions": "options",
        "Optimized": "optimized",
        "PRESETS": "options",
        "Partitioned": "partition_for",
        "Preset": "options",
        "bench": "benchmark",
        "compare": "comparison",
        "doctor": "diagnosis",
        "inspect": "inspection",
        "load": "loading",
        "optimize": "optimization",
        "partition": "partition_for",
    },
)
