"""Decide which plan is kept: the incumbent, unless a mixed plan is significantly faster.

Pure functions of recorded samples, so that the same database gives the same outcome.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Mapping, Sequence

from collage.control.tie_breaking import NEAR, TieBreaking
from collage.decide.timed import Ratios, Timed
from collage.measure.statistics import Interval, percentile
from collage_core.candidates.simple_plan import ALIKE

DISPLACE_BELOW = 0.99
"""Median ratio below which a mixed plan displaces the incumbent: less is not worth another dependency."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The kept plan and the reason.

    Attributes:
        winner: Name of the plan to keep.
        incumbent: Name of the best single-toolchain plan.
        ratios: Ratio of each contender's latency to the incumbent's.
        reason: Reason for the decision, in one sentence.
        incumbent_as_called: Name of the single-toolchain plan that is fastest as users call it; or empty.
        called: Ratio of each contender's latency as users call it to that plan's.
    """

    winner: str
    incumbent: str
    ratios: Mapping[str, Interval]
    reason: str
    incumbent_as_called: str = ""
    called: Mapping[str, Interval] = dataclasses.field(default_factory=dict)


def decide(
    contenders: Sequence[Timed], seed: int, *, failed: Sequence[str] = (), tie_breaking: TieBreaking | None = None
) -> Decision:
    """Select the fastest single-toolchain plan unless a mixed plan displaces it.

    A mixed plan displaces the incumbent only if the 95 % interval of their ratio lies below 1 and the ratio itself
    below `DISPLACE_BELOW`, and if the interval of runs as users call them lies below 1, too: those are compared with
    the single-toolchain plan that is fastest so. Nor is it slower than the fastest single toolchain where another one
    is preferred. Of each kind, only the plans that ran the last round are considered, and no mixed plan that left
    before the incumbent: the others left because further rounds would not have mattered (`Staying`). Nor is any that
    cannot be compared with the incumbent, because what ran beside both failed or turned out wrong. Ties fall to fewer
    kernels, then fewer toolchains, then the name.

    Among single-toolchain plans that are statistically indistinguishable, and among mixed plans that would each
    displace them, the preferred one is taken, and the reason says so. Plans are indistinguishable from the fastest
    if their ratio to it is at most 1 + `NEAR` and its 95 % interval reaches down to 1. Without a preference, of such
    mixed plans that with the fewest kernels is taken, if its ratio is at most 1 + `ALIKE`. It may have left, if not
    before the incumbent: those leave, too, of which further rounds would not have saved enough.

    Args:
        contenders: At least one.
        seed: Seed of the bootstrap.
        failed: Names of mixed plans that could not be built or run; used for the reason only.
        tie_breaking: Targets to prefer where measurements cannot decide; no preference if None.

    Raises:
        ValueError: If there is no contender.
    """
    if not contenders:
        raise ValueError("nothing to decide between")
    prefer, between = tie_breaking or TieBreaking(), Ratios(contenders, seed)
    singles, mixed = _last([c for c in contenders if c.single]), [c for c in contenders if not c.single]
    stayed = singles or _last(mixed)
    preferred = functools.partial(
        _tied, between=between, within=NEAR, rank=lambda c: prefer.rank(c.targets), so="--prefer decided for {}"
    )
    incumbent, settled = preferred(stayed)
    ratios = {c.name: between(c, incumbent) for c in contenders}
    best, called = _as_called(contenders, singles, between)
    comparable = [c for c in mixed if between.are_comparable(c, incumbent)]
    mixed = [c for c in _last(comparable) if c is not incumbent]
    challengers = sorted(mixed, key=lambda c: between(c, mixed[0]).value)  # the incumbent may have left early

    def is_faster(c: Timed) -> bool:
        return (
            ratios[c.name].high < 1.0
            and ratios[c.name].value < DISPLACE_BELOW
            and c.end >= incumbent.end  # it did not leave because it would not be kept
            and between(c, stayed[0]).value <= 1.0  # which may not be the incumbent
        )

    def is_faster_as_called(c: Timed) -> bool:
        return c.name not in called or called[c.name].high < 1.0

    faster = list(filter(is_faster, challengers))
    displacing = list(filter(is_faster_as_called, faster))
    if displacing:
        challenger, why = preferred(displacing)
        if not why:
            left = [c for c in comparable if c not in challengers and is_faster(c) and is_faster_as_called(c)]
            so = "{} is kept, which has fewer kernels"
            challenger, why = _tied([*displacing, *left], between, ALIKE, lambda c: (c.kernels,), so)
        ratio = ratios[challenger.name]
        return Decision(
            winner=challenger.name,
            incumbent=incumbent.name,
            ratios=ratios,
            reason=(
                f"the mixed plan takes {ratio.value:.3f} of the time of {incumbent.name}, the best single "
                f"toolchain (95 % interval {ratio.low:.3f} to {ratio.high:.3f}){settled}{why}"
            ),
            incumbent_as_called=best,
            called=called,
        )
    reason = _slower_as_called(faster[0], best, called) if faster else _kept(incumbent, challengers, between, failed)
    return Decision(
        winner=incumbent.name,
        incumbent=incumbent.name,
        ratios=ratios,
        reason=reason + settled,
        incumbent_as_called=best,
        called=called,
    )


def _as_called(
    contenders: Sequence[Timed], singles: Sequence[Timed], between: Ratios
) -> tuple[str, dict[str, Interval]]:
    """Return the single-toolchain plan that is fastest as users call it, and every contender's ratio to it."""
    timed = [c for c in singles if c.called_us]
    if not timed:
        return "", {}
    best = min(timed, key=lambda c: (_middle(c.called_us, c.percent), c.name))
    return best.name, {c.name: between.as_called(c, best) for c in contenders if c.called_us}


def _slower_as_called(faster: Timed, best: str, called: Mapping[str, Interval]) -> str:
    ratio = called[faster.name]
    return (
        f"{best} alone is kept: {faster.name} is faster only when its memory is bound; as users call it, it takes "
        f"{ratio.value:.3f} of the time of {best} (95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    )


def _tied(
    order: Sequence[Timed], between: Ratios, within: float, rank: Callable[[Timed], tuple[int, ...]], so: str
) -> tuple[Timed, str]:
    """Return the contender of least rank that cannot be told apart from the first, and why if it is not the first.

    Args:
        order: Contenders, the fastest first.
        between: Their ratios.
        within: Relative difference up to which two may be alike.
        rank: What decides then; the first stays if no other has a lower one.
        so: What it decides, with `{}` for the contender's name.
    """
    fastest = order[0]
    ratios = {c.name: between(c, fastest) for c in order}
    near = [c for c in order if ratios[c.name].low <= 1.0 and ratios[c.name].value <= 1 + within]
    best = min(near or [fastest], key=rank)
    if best is fastest:
        return fastest, ""
    ratio = ratios[best.name]
    return best, (
        f"; {fastest.name} and {best.name} cannot be told apart (ratio {ratio.value:.3f}, 95 % interval "
        f"{ratio.low:.3f} to {ratio.high:.3f}), so {so.format(best.name)}"
    )


def _last(contenders: Sequence[Timed]) -> list[Timed]:
    """Return the contenders that ran to the last round, the fastest first, in the rounds that all of them ran."""
    end = max((c.end for c in contenders), default=0)
    last = [c for c in contenders if c.end == end]
    since = max((c.first_round for c in last), default=0)
    middle = {c.name: statistics.median(c.round_times_us[since - c.first_round :]) for c in last}
    return sorted(last, key=lambda c: (middle[c.name], c.kernels, c.toolchains, c.name))


def _middle(rounds: Sequence[Sequence[float]], percent: float) -> float:
    return statistics.median(percentile(samples, percent) for samples in rounds)


def _kept(incumbent: Timed, challengers: Sequence[Timed], between: Ratios, failed: Sequence[str]) -> str:
    if not incumbent.single:
        return f"no single toolchain runs the whole model, so {incumbent.name} is kept without a comparison"
    kept = f"{_named(incumbent)} is kept"
    if not challengers and not all(c.single for c in between.contenders):
        return f"{kept}: no mixed plan that is left was timed beside it"
    if not challengers and failed:
        return f"{kept}: {' and '.join(failed)} could not be built or run"
    if not challengers:
        return f"{kept}: the search found no mixed plan worth timing"
    ratio = between(challengers[0], incumbent)
    verdict = "slower" if ratio.value >= 1 else "not faster beyond doubt"
    return (
        f"{kept}: the best mixed plan is {verdict}, at {ratio.value:.3f} of its time "
        f"(95 % interval {ratio.low:.3f} to {ratio.high:.3f})"
    )


def _named(incumbent: Timed) -> str:
    """Return what to call the plan of one toolchain: others have nodes of it only where they are pinned to them."""
    return f"{incumbent.name} alone" if incumbent.toolchains == 1 else f"{incumbent.name} with what is pinned to others"
