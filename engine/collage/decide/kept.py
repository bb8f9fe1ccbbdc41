"""The plan that is kept: the best by the race whose package is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from collage.build.assemble import Assembled
from collage.build.plan_builder import PlanBuilder
from collage.build.verifying.verify import Verified
from collage.control.tie_breaking import TieBreaking
from collage.decide.decision import Decision, decide
from collage.decide.races.saved_races import EndToEndTimings
from collage.errors import PlanBuildError, TooInexactError, VerificationError, WrongKernelError
from collage_core.candidates.plan import Plan
from collage_core.errors import CollageError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kept:
    """The plan that is kept.

    Attributes:
        timings: The race without the plans that turned out wrong.
        decision: Why it is this one.
        assembled: The plan with its artifacts.
        verified: What its package did on fresh inputs.
        notes: A sentence for each faster plan that is not kept.
    """

    timings: EndToEndTimings
    decision: Decision
    assembled: Assembled
    verified: Verified
    notes: tuple[str, ...]


def keep_best(
    plans: Sequence[Plan],
    timings: EndToEndTimings,
    builder: PlanBuilder,
    *,
    seed: int,
    tie_breaking: TieBreaking,
    wrong: Callable[[WrongKernelError | TooInexactError], None],
    accept: Callable[[Plan], None] | None = None,
) -> Kept:
    """Return the best plan whose package is right; what is wrong costs itself only, and is among the failed.

    Args:
        plans: Those that ran.
        timings: How they fared.
        builder: Builds and verifies.
        seed: Of the bootstrap.
        tie_breaking: Whom to prefer where the race cannot tell.
        wrong: Receives the kernel that makes a plan wrong, or by how much a plan exceeds the bound; raises if the next
            best plan is not wanted.
        accept: Receives the best plan once its package is right; raises a `VerificationError` if it is not to be kept.

    Raises:
        CollageError: If none is right.
    """
    mixed = [plan.name for plan in plans if not plan.single]
    notes: list[str] = []
    while timings.timed:
        failed = [name for name in mixed if name in timings.failed]
        decision = decide(timings.timed, seed, failed=failed, tie_breaking=tie_breaking)
        winner = next(plan for plan in plans if plan.name == decision.winner)
        try:
            assembled, verified = builder.verified(winner)
            if accept is not None:
                accept(winner)
        except (PlanBuildError, VerificationError) as error:
            if isinstance(error, WrongKernelError | TooInexactError):
                wrong(error)
            notes.append(f"{winner.name} was the fastest and is not kept: {error}")
            builder.progress.message(notes[-1])
            timings = timings.without(winner.name, str(error))
            continue
        assembled = dataclasses.replace(assembled, plan=winner)  # it was built before its kernels were timed in place
        return Kept(timings=timings, decision=decision, assembled=assembled, verified=verified, notes=tuple(notes))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in timings.failed.items())
    raise CollageError(f"no plan runs the whole model: {reasons or 'the search found none'}")
