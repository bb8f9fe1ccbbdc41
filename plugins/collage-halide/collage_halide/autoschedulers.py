"""Loops by Halide's own autoschedulers, as further variants.

They come with the wheel as libraries that Halide loads: R. T. Mullapudi et al., "Automatically Scheduling Halide Image
Processing Pipelines" (SIGGRAPH 2016), and A. Adams et al., "Learning to Optimize Halide with Tree Search and Random
Programs" (SIGGRAPH 2019).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
from collections.abc import Mapping
from pathlib import Path

from collage_core.contract import BuildContext
from collage_halide import hl
from collage_halide.machine import halide_target
from collage_halide.pipeline import Group

_FOLDERS = ("lib64", "lib")
"""Where the wheel has its libraries."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Autoscheduler:
    """A variant of the schedule, by an autoscheduler.

    Attributes:
        name: Its name.
        algorithm: Halide's name of the autoscheduler.
        library: Stem of the library that has it.
        effort: Least `BuildContext.effort` for which it is worth the time.
    """

    name: str
    algorithm: str
    library: str
    effort: int

    def schedule(self, group: Group, build: BuildContext) -> None:
        """Schedule a group, not yet scheduled.

        Raises:
            halide.HalideError: If it finds no schedule.
        """
        _load(self.library)
        for place in group.places:
            if place.where != "out":
                for dimension, extent in enumerate(reversed(place.shape)):
                    place.parameter.dim(dimension).set_estimate(0, extent)
        for stage in group.outputs:
            for variable, extent in zip(stage.variables, stage.shape, strict=True):
                stage.func.set_estimate(variable, 0, extent)
        pipeline = hl.Pipeline([stage.func for stage in group.outputs])
        options: Mapping[str, str] = {"parallelism": str(build.threads)}
        pipeline.apply_autoscheduler(halide_target(build.host), hl.AutoschedulerParams(self.algorithm, dict(options)))


AUTOSCHEDULERS = (
    Autoscheduler(name="mullapudi", algorithm="Mullapudi2016", library="autoschedule_mullapudi2016", effort=1),
    # takes 25 s for two operators
    Autoscheduler(name="adams", algorithm="Adams2019", library="autoschedule_adams2019", effort=2),
)
"""All of them, the quickest first."""


def autoschedulers(effort: int) -> list[Autoscheduler]:
    """Return those that an effort is worth.

    Args:
        effort: `BuildContext.effort`.
    """
    return [each for each in AUTOSCHEDULERS if each.effort <= effort]


@functools.cache
def _load(library: str) -> None:
    """Load a library of the wheel into Halide, once in a process."""
    spec = importlib.util.find_spec("halide")
    assert spec is not None
    assert spec.origin is not None
    found = [path for folder in _FOLDERS if (path := Path(spec.origin).parent / folder / f"lib{library}.so").is_file()]
    hl.load_plugin(str(found[0]) if found else library)
