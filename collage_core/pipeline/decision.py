"""Which plan is kept: the incumbent, unless a mixed plan is faster beyond doubt.

Pure functions of recorded samples, so that the same database gives the same outcome.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence

from collage_core.measure.statistics import Interval, ratio_interval

DISPLACE_BELOW = 0.98
"""A mixed plan needs a median ratio below this: less is not worth another dependency."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A contender with its end-to-end samples.

    Attributes:
        name: Unique name.
        single: Whether one toolchain runs it: an incumbent, not a challenger.
        kernels: Number of kernels.
        toolchains: Number of toolchains.
        rounds_us: Samples of each interleaved round, in microseconds; round `i` of all contenders ran together.
    """

    name: str
    single: bool
    kernels: int
    toolchains: int
    rounds_us: tuple[tuple[float, ...], ...]

    @property
    def round_medians_us(self) -> tuple[float, ...]:
        """Median of each round."""
        return tuple(statistics.median(samples) for samples in self.rounds_us)

    @property
    def median_us(self) -> float:
        """Median of the rounds' medians."""
        return statistics.median(self.round_medians_us)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The outcome.

    Attributes:
        winner: Name of the plan to keep.
        incumbent: Name of the best single-toolchain plan.
        ratios: Ratio of each contender's latency to the incumbent's.
        reason: Why, in one sentence.
    """

    winner: str
    incumbent: str
    ratios: Mapping[str, Interval]
    reason: str


def decide(contenders: Sequence[Timed], seed: int, *, out: Sequence[str] = ()) -> Decision:
    """Keeps the fastest single-toolchain plan unless a mixed one displaces it.

    A mixed plan displaces the incumbent only if the 95 % interval of their ratio lies below 1 and the ratio itself
    below `DISPLACE_BELOW`. Ties fall to fewer kernels, then fewer toolchains, then the name.

    Args:
        contenders: At least one; all timed in the same rounds.
        seed: Of the bootstrap.
        out: Names of mixed plans that failed, or were left out of the last rounds; for the reason only.

    Raises:
        ValueError: If there is no contender.
    """
    if not contenders:
        raise ValueError("nothing to decide between")
    order = sorted(contenders, key=lambda c: (c.median_us, c.kernels, c.toolchains, c.name))
    incumbent = next((c for c in order if c.single), order[0])
    ratios = {c.name: ratio_interval(c.rounds_us, incumbent.rounds_us, seed=seed) for c in contenders}
    challengers = sorted(
        (c for c in order if not c.single and c is not incumbent), key=lambda c: (ratios[c.name].value, c.name)
    )
    for challenger in challengers:
        ratio = ratios[challenger.name]
        if ratio.high < 1.0 and ratio.value < DISPLACE_BELOW:
            return Decision(
                winner=challenger.name,
                incumbent=incumbent.name,
                ratios=ratios,
                reason=(
                    f"the mixed plan takes {ratio.value:.3f} of the time of {incumbent.name}, the best single "
                    f"toolchain (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
                ),
            )
    return Decision(
        winner=incumbent.name,
        incumbent=incumbent.name,
        ratios=ratios,
        reason=_kept(incumbent, challengers, ratios, out),
    )


def _kept(incumbent: Timed, challengers: Sequence[Timed], ratios: Mapping[str, Interval], out: Sequence[str]) -> str:
    if not incumbent.single:
        return f"no single toolchain runs the whole model, so {incumbent.name} is kept without a comparison"
    if not challengers and out:
        return f"{incumbent.name} alone is kept: {' and '.join(out)} failed or was far slower in the first rounds"
    if not challengers:
        return f"{incumbent.name} alone is kept: the search found no mixed plan worth timing"
    ratio = ratios[challengers[0].name]
    verdict = "slower" if ratio.value >= 1 else "not faster beyond doubt"
    return (
        f"{incumbent.name} alone is kept: the best mixed plan is {verdict}, at {ratio.value:.3f} of its time "
        f"(95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    )
