"""Keywords of the functions of `collage`, for type checkers: fields of `OptimizeOptions` and `BenchOptions`.

A misspelt keyword is an error before anything runs (PEP 692). `collage.options` says what each means.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from collage_core.ir.values.size_range import Shape

if TYPE_CHECKING:
    from collage.control.fusion_specs import OwnRule
    from collage.control.metric import Metric
    from collage.setup.inputs.calibration import Calibration
    from collage.setup.inputs.random_arrays import Given


class OptimizeKeywords(TypedDict, total=False):
    """Keywords of `collage.optimize` besides those that it names."""

    inputs: Given | None
    preset: str
    search: str
    budget_s: float | None
    max_error: float | None
    calibration: Calibration | None
    metric: str | Metric | None
    max_drop: float | None
    labelled: Calibration | None
    ranges: str
    tuning_db: str | None
    runner: str | None
    split_hosts: bool | None
    threads: int | None
    seed: int
    rtol: float | None
    reference: str | None
    warmup: int | None
    iterations: int | None
    percentile: float
    duration_s: float | None
    pins: tuple[str, ...]
    prefer: str | None
    fusion_specs: Mapping[str, OwnRule]
    load_plan: str | os.PathLike[str] | None
    deterministic: bool
    retry_failed: bool


class BenchKeywords(TypedDict, total=False):
    """Keywords of `collage.bench` besides those that it names."""

    compare: bool
    threads: int | None
    warmup: int
    iterations: int
    duration_s: float
    rounds: int
    input_shapes: Mapping[str, Shape]
    inputs: Given | None
    seed: int
    streams: int


Names = Sequence[str] | str | None
"""Toolchains or targets: a list, or text with commas; all that are installed if None."""
