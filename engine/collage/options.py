"""Options of an optimisation or a comparison, and the definitions of the presets."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from collage_core.contract import Protocol
from collage_core.errors import UsageError
from collage_core.ir.values.size_range import Shape
from collage_core.search import check_available

if TYPE_CHECKING:
    from collage.control.fusion_specs import OwnRule
    from collage.control.metric import Metric
    from collage.setup.inputs.calibration import Calibration
    from collage.setup.inputs.random_arrays import Given


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """Amount of work of an optimisation.

    Each distinct candidate is measured once per target, so the counts bound the measuring: `default` measures about
    a hundred on a model the size of ResNet-50, most of them in less than half a second. The record states what a bound
    leaves out.

    Attributes:
        name: As given to `--preset`.
        operators: Distinct single operators measured per target, and half as many fused groups, those with most work
            first. Regions are bounded by `CandidateBounds.preset` of the same name.
        coalesce_rounds: How often neighbours on the best plan are merged, measured and searched again.
        confirm_rounds: How often the chosen path is measured afresh and searched again.
        challengers: Most mixed plans that are timed end to end at first, and most that join at a time.
        rounds: Most interleaved rounds of the end-to-end race.
        round_s: Seconds each contender runs in a round.
        race_s: Seconds after which no further heat of a race begins, except the second. Plans that look better then may
            join within 30 s more, the building of all plans included, and have one heat at least.
        protocol: Timing protocol of candidates.
        effort: Passed to toolchains as `BuildContext.effort`.
        max_variants: Variants of a candidate that are timed, on the CPU.
        device_variants: Variants of a candidate that are timed, on a device.
        deadline_s: Seconds a worker has for one candidate.
        evaluations: Number of plans timed by the second level of `--search two-level`.
        running_s: Seconds that candidates may run, checked and timed, until the lazy search asks for no more. What it
            takes to build them does not count. Those of VGG-19, the longest of 17 models, ran for 33 s.
        patience: Measurements in a row, for each target that mixes, after which the lazy search asks for no more if the
            best plan is the same, but not before the plan that lacks fewest could be complete. In the replay of the
            benchmark of regret, with two targets, more than 5 % is lost on 8 models of 40 after 12 in all, on 3 after
            20 and on none after 30.
        load_wait_s: Seconds that other load is waited for at most, when candidates and whole plans are timed; 0 for
            not at all.
    """

    name: str
    operators: int
    coalesce_rounds: int
    confirm_rounds: int
    challengers: int
    rounds: int
    round_s: float
    race_s: float
    protocol: Protocol
    effort: int
    max_variants: int
    device_variants: int
    deadline_s: float
    evaluations: int = 24
    running_s: float = math.inf
    patience: int = 15
    load_wait_s: float = 5.0


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            name="quick",
            operators=12,
            coalesce_rounds=1,
            confirm_rounds=1,
            challengers=2,
            rounds=12,
            round_s=0.04,
            race_s=15.0,
            protocol=Protocol(warmup_runs=2, warmup_s=0.01, min_samples=3, duration_s=0.05),
            effort=0,
            max_variants=1,
            device_variants=1,
            deadline_s=60.0,
            evaluations=8,
            load_wait_s=0.0,
        ),
        Preset(
            name="default",
            operators=16,
            coalesce_rounds=2,
            confirm_rounds=3,
            challengers=3,
            rounds=84,
            round_s=0.06,
            race_s=90.0,
            protocol=Protocol(warmup_runs=1, warmup_s=0.02, min_samples=5, duration_s=0.12),
            effort=1,
            max_variants=1,
            device_variants=4,
            deadline_s=120.0,
            running_s=45.0,
        ),
        Preset(
            name="extensive",
            operators=400,
            coalesce_rounds=4,
            confirm_rounds=3,
            challengers=6,
            rounds=246,
            round_s=0.1,
            race_s=300.0,
            protocol=Protocol(warmup_runs=5, warmup_s=0.05, min_samples=9, duration_s=0.4),
            effort=2,
            max_variants=4,
            device_variants=16,
            deadline_s=600.0,
            evaluations=96,
            patience=150,
        ),
    )
}


_UNDER_METRIC: Final = 0.5
"""Error of an output above which it is wrong, whatever a metric says."""
_KERNEL_UNDER_METRIC: Final = 0.02
"""Error that a kernel of a library may have by itself where a metric decides about the whole."""
SEARCHES = ("lazy", "exact", "two-level", "ilp")
RANGES = ("minmax", "percentile", "entropy")
"""Ways to take ranges of 8-bit integers from calibration samples; see `collage.precision.sensitivity.calibrators`."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeOptions:
    """Options of `optimize`, named as on the command line.

    Attributes:
        toolchains: Comma-separated targets; every installed toolchain but `reference` if None.
        exclude: Toolchains or targets to leave out.
        input_shapes: Shape to bind, by input name.
        inputs: Values for the model's inputs to search on, by name, or the NPZ file that holds them
            (`collage.values.npz` says how); seeded random arrays if None.
        preset: `"quick"`, `"default"` or `"extensive"`.
        search: One of `SEARCHES`: measure what best plans lack (`"lazy"`), or all that the preset says (`"exact"`),
            also with an integer program's word on it (`"ilp"`); or lazily, then change whole plans (`"two-level"`).
        budget_s: Seconds for the whole run. In the first part candidates are measured, then plans are raced and the
            chosen one is verified. What no plan can do without is tried in any case, but not for long.
        max_error: Largest error of the model's outputs, relative to their scale, up to which targets that do not
            compute in the model's own dtypes are used; None leaves such targets out.
        calibration: Samples of the inputs from which the ranges of 8-bit integers are taken, and on which errors of
            lower precision are looked at: in memory, in an NPZ file or in a folder of such
            (`collage.setup.inputs.calibration`). Those of `labelled` if None, or else the inputs and some random ones.
        metric: Says how good outputs are (`collage.control.metric`): a function, or `"FILE.py:FUNCTION"`. Lower
            precision is then used as long as that drops by `max_drop` at most.
        max_drop: See `metric`; in its unit.
        labelled: Samples for `metric`, as for `calibration`, which hold arrays of other names besides.
        ranges: One of `RANGES`: ranges of 8-bit integers are those of all numbers in the samples (`"minmax"`), the
            narrowest that hold 99.99 % of them (`"percentile"`), or those that lose least information (`"entropy"`).
        tuning_db: URL of the tuning database; the user's own if None.
        runner: Whose machines measure candidates (`"ray://host:10001"`); this one does if None. Those take part that
            are of this machine's kind, with the same versions of all that is installed.
        split_hosts: Whether such a machine measures several candidates at once, each on cores of its own; None to find
            out whether they slow each other there.
        threads: CPU threads; one per physical core if None.
        seed: For inputs and anything else random.
        rtol: Largest error of a kernel relative to its tensor's scale.
        reference: Toolchain that computes what ONNX's evaluator cannot; the first exact one if None.
        warmup: Untimed runs before a measurement.
        iterations: Timed samples of a measurement, at most.
        percentile: Which of the latencies counts, of kernels and of whole plans, in percent: 50, the median, finds the
            plan that is usually the fastest, 90 the one that is seldom slow.
        duration_s: Seconds of a measurement.
        pins: Nodes given to a toolchain whatever is fastest: `"GLOB=toolchain"`, by names of the prepared model.
        prefer: Comma-separated targets, best first, for what measurements cannot decide; see `TieBreaking`.
        fusion_specs: Rules that find candidates, by the targets they are for; see `with_own_rules`.
        load_plan: A plan file to build, measure and verify instead of searching; see `plan_file`.
        deterministic: Whether only kernels take part that give the same bits for the same inputs, each time.
        retry_failed: Whether to try again what the tuning database remembers as failed: kernels, profiles, queries and
            plans.
        beside_others: Whether plans for other shapes run in the same process: targets that do not mix, whose threads
            keep cores busy after a run, take no part then. `optimize_shapes` sets it.
    """

    toolchains: str | None = None
    exclude: tuple[str, ...] = ()
    input_shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    inputs: Given | None = None
    preset: str = "default"
    search: str = "lazy"
    budget_s: float | None = None
    max_error: float | None = None
    calibration: Calibration | None = None
    metric: str | Metric | None = None
    max_drop: float | None = None
    labelled: Calibration | None = None
    ranges: str = "minmax"
    tuning_db: str | None = None
    runner: str | None = None
    split_hosts: bool | None = None
    threads: int | None = None
    seed: int = 0
    rtol: float | None = None
    reference: str | None = None
    warmup: int | None = None
    iterations: int | None = None
    percentile: float = 50.0
    duration_s: float | None = None
    pins: tuple[str, ...] = ()
    prefer: str | None = None
    fusion_specs: Mapping[str, OwnRule] = dataclasses.field(default_factory=dict)
    load_plan: str | os.PathLike[str] | None = None
    deterministic: bool = False
    retry_failed: bool = False
    beside_others: bool = False

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UsageError(f"no preset {self.preset!r}; choose one of {', '.join(PRESETS)}")
        if self.search not in SEARCHES:
            raise UsageError(f"no search {self.search!r}; choose one of {', '.join(SEARCHES)}")
        if self.search == "ilp":
            check_available()
        if self.threads is not None and self.threads < 1:
            raise UsageError(f"--threads is at least 1, not {self.threads}")
        if self.budget_s is not None and not self.budget_s > 0:  # as nan is not
            raise UsageError(f"--budget is a time longer than 0 s, not {self.budget_s:g} s")
        if self.rtol is not None and not 0 < self.rtol < math.inf:
            raise UsageError(f"--rtol is a fraction of a tensor's scale above 0, not {self.rtol}")
        if self.max_error is not None and not 0 < self.max_error < 1:
            raise UsageError(f"--max-error is a fraction of an output's scale between 0 and 1, not {self.max_error}")
        if len({each is None for each in (self.metric, self.max_drop, self.labelled)}) > 1:
            raise UsageError("--metric, --max-drop and --labelled belong together: give all three")
        if self.max_drop is not None and not 0 <= self.max_drop < math.inf:
            raise UsageError(f"--max-drop is a number of the metric's unit, 0 or more, not {self.max_drop}")
        if self.calibration is not None and self.error_allowed is None:
            raise UsageError(
                "--calibration is for lower precision, which --max-error or --metric allows: give one of these, too"
            )
        if not 0 < self.percentile < 100:
            raise UsageError(f"no percentile {self.percentile:g}; give a number between 0 and 100, such as 90")
        if self.ranges not in RANGES:
            raise UsageError(f"no ranges {self.ranges!r}; choose one of {', '.join(RANGES)}")
        if self.ranges != "minmax" and self.error_allowed is None:
            raise UsageError(
                "--ranges is for lower precision, which --max-error or --metric allows: give one of these, too"
            )

    @property
    def error_allowed(self) -> float | None:
        """Largest error of an output; half of its scale where only a metric decides, and None in own types only."""
        return _UNDER_METRIC if self.max_error is None and self.metric is not None else self.max_error

    @property
    def kernel_error_allowed(self) -> float | None:
        """Largest error of a kernel of lower precision whose region is not chosen by what it does to the outputs."""
        return _KERNEL_UNDER_METRIC if self.max_error is None and self.metric is not None else self.max_error

    @property
    def tolerance(self) -> float:
        """Largest error of an exact target's kernel, relative to its tensor's scale."""
        return 1e-3 if self.rtol is None else self.rtol

    @property
    def effective(self) -> Preset:
        """The preset with the user's own measuring times."""
        preset = PRESETS[self.preset]
        protocol = preset.protocol
        if self.warmup is not None:
            protocol = dataclasses.replace(protocol, warmup_runs=self.warmup)
        if self.iterations is not None:
            protocol = dataclasses.replace(
                protocol, max_samples=self.iterations, min_samples=min(protocol.min_samples, self.iterations)
            )
        if self.duration_s is not None:
            protocol = dataclasses.replace(protocol, duration_s=self.duration_s)
        return dataclasses.replace(preset, protocol=protocol)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """Options of `bench`, named as on the command line.

    Attributes:
        compare: Whether every usable single target joins the contenders.
        threads: CPU threads; one per physical core if None.
        warmup: Untimed runs of each contender.
        iterations: Least timed runs of each contender and round.
        duration_s: Total seconds of each contender.
        rounds: Interleaved rounds.
        toolchains: See `OptimizeOptions`.
        exclude: See `OptimizeOptions`.
        input_shapes: See `OptimizeOptions`.
        inputs: See `OptimizeOptions`.
        seed: Seed for random inputs.
        plans: Plan files; each is a contender, and the loss of `collage` against it is reported.
        streams: Sessions that run side by side, each in a thread of its own, for throughput; 1 for latency alone.
    """

    compare: bool = False
    threads: int | None = None
    warmup: int = 5
    iterations: int = 2
    duration_s: float = 5.0
    rounds: int = 60
    toolchains: str | None = None
    exclude: tuple[str, ...] = ()
    input_shapes: Mapping[str, Shape] = dataclasses.field(default_factory=dict)
    inputs: Given | None = None
    seed: int = 0
    plans: tuple[Path, ...] = ()
    streams: int = 1

    def __post_init__(self) -> None:
        if self.streams < 1:
            raise UsageError(f"--streams is at least 1, not {self.streams}")
