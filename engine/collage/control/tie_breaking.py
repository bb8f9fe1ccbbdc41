"""`--prefer`: choose between targets where measurements show no clear winner.

Near-ties flip from run to run, and with them the numerical results and the libraries a package needs. Where
measurements cannot distinguish two choices, a declared order of targets decides; elsewhere the order has no effect.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Protocol

from collage.measure.statistics import median_interval
from collage.report import figures
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Target, TargetSpelling, Unmeasured, split_targets
from collage_core.errors import UsageError
from collage_core.fusion import CandidateKernel, Partitioning
from collage_core.search import SearchTarget

NEAR = 0.05
"""Relative difference up to which two choices are near; a larger one counts even if it is not significant."""

_NAMES_SHOWN = 2


class Samples(Protocol):
    """Samples from which costs were computed; implemented by `MeasuringCostSource`."""

    def medians_us(self, candidate: CandidateKernel, *, confirmed: bool = True) -> tuple[float, ...]:
        """Return the median of each block of samples that counts, in microseconds.

        Args:
            candidate: The candidate.
            confirmed: Whether fresh samples count, too; otherwise those that it was selected by.
        """


@dataclasses.dataclass(frozen=True, slots=True)
class TieBreaking:
    """A preference order of targets; targets it does not name rank last, all equal.

    Attributes:
        order: Best first; a toolchain without options stands for all its targets.
    """

    order: tuple[TargetSpelling, ...] = ()

    @classmethod
    def parse(cls, text: str | None) -> TieBreaking:
        """Parse the value of `--prefer`.

        Raises:
            UsageError: If it is not a list of targets.
        """
        try:
            return cls(() if text is None else split_targets(text))
        except ValueError as error:
            raise UsageError(f"--prefer: {error}") from error

    def check(self, targets: Iterable[Target]) -> None:
        """See that it speaks of targets that take part.

        Raises:
            UsageError: If one of those named does not.
        """
        known = [target.name for target in targets]
        for spelling in self.order:
            if not any(_is_of(spelling, name) for name in known):
                raise UsageError(
                    f"--prefer: no target {spelling.toolchain!r} takes part; those that do: {', '.join(known)}"
                )

    def __bool__(self) -> bool:
        return bool(self.order)

    def rank(self, targets: Iterable[str]) -> tuple[int, ...]:
        """Compute a sort key from the preference positions of these targets, the least preferred first.

        Targets that it does not name count as one, so that their number decides nothing; a named one beside them is
        better than none.

        Args:
            targets: Names of targets.
        """
        places = {self._place(name) for name in targets}
        return (*sorted(places, reverse=True), len(self.order) + 1)

    def _place(self, name: str) -> int:
        return next((place for place, each in enumerate(self.order) if _is_of(each, name)), len(self.order))


def _is_of(spelling: TargetSpelling, name: str) -> bool:
    target = TargetSpelling.parse(name)
    return spelling.toolchain == target.toolchain and spelling.options in ((), target.options)


def break_ties(
    plan: Plan, pool: CandidatePool, source: Samples, tie_breaking: TieBreaking
) -> tuple[Plan, tuple[str, ...]]:
    """Reassign each kernel to the most preferred target that is not significantly slower.

    Another target on the same device gets a kernel if it can run exactly these nodes as one kernel, its cost is at
    most `NEAR` higher, the 95 % intervals of both medians overlap, and it may share a plan with all other targets.

    Args:
        plan: Plan to change.
        pool: Pool that the plan was chosen from.
        source: Provides the samples behind each cost.
        tie_breaking: Preferred targets.

    Returns:
        The plan, and a sentence for each kernel that was reassigned.
    """
    said: list[str] = []
    costs = plan.cost_of
    chosen: list[CandidateKernel] = []
    for kernel in plan.partitioning.kernels:
        own = costs[kernel.sub_graph.nodes]
        others = [SearchTarget.of(each.target) for each in (*chosen, *plan.partitioning.kernels[len(chosen) + 1 :])]
        rivals = [each for each in pool if each.sub_graph.nodes == kernel.sub_graph.nodes and each.target.mixable]
        near = [
            each
            for each in rivals
            if all(SearchTarget.of(each.target).mixes_with(other) for other in others)
            and _is_near(pool, source, kernel, each, own)
        ]
        best = min([kernel, *near], key=lambda each: tie_breaking.rank([each.target.name]))
        if best is not kernel:
            cost = pool.cost(best)
            assert not isinstance(cost, Unmeasured)
            costs[kernel.sub_graph.nodes] = cost
            said.append(
                f"{_named(kernel.sub_graph.names)}: {kernel.target.name} ({figures.microseconds(own)} us) and "
                f"{best.target.name} ({figures.microseconds(cost)} us) cannot be told apart, so --prefer decided for "
                f"{best.target.name}"
            )
        chosen.append(best)
    if not said:
        return plan, ()
    partitioning = Partitioning(plan.graph, tuple(chosen))
    costs_us = tuple(costs[kernel.sub_graph.nodes] for kernel in chosen)
    return dataclasses.replace(plan, partitioning=partitioning, costs_us=costs_us), tuple(said)


def _is_near(
    pool: CandidatePool, source: Samples, kernel: CandidateKernel, other: CandidateKernel, own_us: float
) -> bool:
    cost_us = pool.cost_us(other)
    if other.target.device != kernel.target.device:  # its copies would come or go
        return False
    if other.target == kernel.target or cost_us is None or cost_us > own_us * (1 + NEAR):
        return False
    confirmed = pool.costs.confirmed  # a later run may know fresh samples of others
    mine, theirs = (
        median_interval(source.medians_us(each, confirmed=pool.cache_key(each) in confirmed))
        for each in (kernel, other)
    )
    return theirs.low <= mine.high


def _named(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMES_SHOWN]) + (
        f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    )
