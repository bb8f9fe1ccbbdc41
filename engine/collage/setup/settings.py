"""What the options of a run mean: for whom it is set up, how it measures, and how many candidates it makes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Literal, Self, cast

from collage.measure.budget import UNLIMITED, Budget
from collage.measure.driver.settings import MeasureSettings
from collage.measure.wire.outcomes import BuildSettings, Tolerance
from collage.options import BenchOptions, OptimizeOptions
from collage.setup.targets import Selection
from collage_core.fusion import CandidateBounds

_SHARE = 0.4
_LEAST_S = 5.0
"""Share of the budget, and seconds, that one candidate may take at most."""

PRIVATE = "memory:"
"""URL of a tuning database that ends with the process."""


def candidate_bounds(options: OptimizeOptions) -> CandidateBounds:
    """Return the bounds of the options' preset."""
    return CandidateBounds.preset(cast(Literal["quick", "default", "extensive"], options.preset))


def measure_settings(options: OptimizeOptions, threads: int) -> MeasureSettings:
    """Return how candidates are built, checked and timed.

    Args:
        options: What the user said.
        threads: CPU threads of each kernel.
    """
    preset, exact = options.effective, options.tolerance
    inexact = max(exact, options.error_allowed or 0.0)
    kernel = max(exact, options.kernel_error_allowed or 0.0)
    return MeasureSettings(
        build=BuildSettings(
            threads=threads,
            effort=preset.effort,
            seed=options.seed,
            max_variants=preset.max_variants,
            deterministic=options.deterministic,
        ),
        device_variants=preset.device_variants,
        protocol=preset.protocol,
        percentile=options.percentile,
        load_wait_s=preset.load_wait_s if options.budget_s is None else 0.0,  # its time is for candidates
        tolerance=Tolerance(relative=exact, mismatched=exact),
        inexact_tolerance=Tolerance(relative=inexact, mismatched=inexact),
        inexact_kernel_tolerance=Tolerance(relative=kernel, mismatched=kernel),
        by_region=options.error_allowed is not None and not options.pins,
        deadline_s=preset.deadline_s
        if options.budget_s is None
        else min(preset.deadline_s, _least_s(options.budget_s)),
    )


def _least_s(budget_s: float) -> float:
    """Return the seconds of a candidate that no plan can do without, where there is a budget."""
    return max(_LEAST_S, _SHARE * budget_s)


def plain_settings(threads: int) -> MeasureSettings:
    """Return the settings of whoever builds and checks kernels, and decides nothing by their times."""
    return MeasureSettings(build=BuildSettings(threads=threads))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SetupChoices:
    """What a user chooses about the toolchains at work and how they are measured.

    Attributes:
        toolchains: Comma-separated targets; every installed toolchain but those on request if None.
        exclude: Toolchains or targets to leave out.
        inexact: Whether targets that do not compute in the model's own dtypes may take part.
        reference: Toolchain that computes what ONNX's evaluator cannot; the first exact one if None.
        tuning_db: URL of the tuning database; the user's own if None.
        runner: Whose machines measure; this one does if None.
        split_hosts: Whether such a machine measures several candidates at once; None to find out whether it may.
        threads: CPU threads; one per physical core if None.
        retry_failed: Whether to try again what the tuning database remembers as failed.
        measuring: How candidates are measured, by CPU threads.
        budget: Time that is left of the run.
    """

    toolchains: str | None = None
    exclude: tuple[str, ...] = ()
    inexact: bool = False
    reference: str | None = None
    tuning_db: str | None = None
    runner: str | None = None
    split_hosts: bool | None = None
    threads: int | None = None
    retry_failed: bool = False
    measuring: Callable[[int], MeasureSettings] = plain_settings
    budget: Budget = UNLIMITED

    @classmethod
    def of(cls, options: OptimizeOptions, budget: Budget = UNLIMITED) -> Self:
        """Return what the options of `optimize` say.

        Args:
            options: What the user said.
            budget: The budget of the options, which has begun.
        """
        return cls(
            toolchains=options.toolchains,
            exclude=options.exclude,
            inexact=options.error_allowed is not None,
            reference=options.reference,
            tuning_db=options.tuning_db,
            runner=options.runner,
            split_hosts=options.split_hosts,
            threads=options.threads,
            retry_failed=options.retry_failed,
            measuring=functools.partial(measure_settings, options),
            budget=budget,
        )

    @property
    def selection(self) -> Selection:
        """Which targets take part.

        Raises:
            UsageError: If one is misspelt, or none is named.
        """
        return Selection.parse(self.toolchains, self.exclude, inexact=self.inexact)

    @classmethod
    def of_bench(cls, options: BenchOptions) -> Self:
        """Return what the options of `bench` say, which compares with whoever there is and remembers nothing."""
        return cls(
            toolchains=options.toolchains,
            exclude=options.exclude,
            inexact=True,
            tuning_db=PRIVATE,
            threads=options.threads,
        )
