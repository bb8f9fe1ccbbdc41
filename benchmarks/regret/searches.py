"""Replay searches of one model, and compare what they would keep with the best plan of all known candidates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from benchmarks.replay.bench import Bench
from benchmarks.replay.source import Replay
from collage.decide.decision import decide
from collage.decide.timed import Timed
from collage.options import OptimizeOptions
from collage.setup.settings import candidate_bounds
from collage.store import Purpose, TuningStore
from collage.store.memory import MemoryStore
from collage_core.candidates.all_proposals import propose_all
from collage_core.candidates.chosen_plan import as_plan
from collage_core.candidates.plan import Plan
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import INVALID, Unmeasured
from collage_core.fusion import CandidateKernel
from collage_core.ir.graph.masks import iterate_bits

TOOLCHAINS: Final = "onnxruntime,openvino"
EXHAUSTIVE: Final = OptimizeOptions(preset="extensive", search="exact", toolchains=TOOLCHAINS)
"""Fills the databases; every candidate of every search is measured as this one measures."""
DEFAULT: Final = OptimizeOptions(toolchains=TOOLCHAINS)
"""What users get."""
CANDIDATES: Final[tuple[Purpose, ...]] = ("select",)
"""Only candidates that a database lacks are measured in a replay. A second measurement of one that it knows is made up
of its samples: another minute's would say more of the minute than of the candidate."""
SEARCHES: Final[Mapping[str, OptimizeOptions]] = {"exhaustive": EXHAUSTIVE, "default": DEFAULT}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Searched:
    """One replayed search.

    Attributes:
        plans: The plans it would time end to end.
        candidates: Everything that was proposed to it.
        seconds: Seconds of measuring.
        measured: Number of measurements.
        fresh: How many of them the database lacked.
        unknown: Candidates that failed because the database lacks them and nothing is measured.
    """

    plans: Sequence[Plan]
    candidates: tuple[CandidateKernel, ...]
    seconds: float
    measured: int
    fresh: int
    unknown: int


def searched(
    bench: Bench, options: OptimizeOptions, store: TuningStore, draw: int | None, *, live: Collection[Purpose]
) -> Searched:
    """Replay a search.

    Args:
        bench: The model.
        options: The search.
        store: Measurements of the model.
        draw: Seed for resampling; None to serve the recorded samples.
        live: Purposes for which what the store lacks is measured and added; see `Replay`.

    Raises:
        CollageError: If no plan covers the model.
    """
    source = Replay(store, draw, timing=bench.timing, live=live, **bench.options)
    explored, plans = bench.explored(options, source)
    return Searched(
        plans=plans,
        candidates=tuple(explored.pool),
        seconds=source.seconds,
        measured=source.counts.measured,
        fresh=source.fresh,
        unknown=source.unknown,
    )


def known_pool(bench: Bench, store: TuningStore, candidates: Iterable[CandidateKernel]) -> CandidatePool:
    """Return a pool of all that is known, at long-run costs."""
    return bench.long_run_pool(store).with_candidates(candidates)


def best_known(pool: CandidatePool) -> Plan:
    """Return the cheapest plan over all candidates of a pool, by the exact search.

    Raises:
        NoCoverError: If none covers the model.
    """
    return as_plan(pool, "best known", pool.engine().run(), single=False)


def at_costs(plan: Plan, pool: CandidatePool) -> Plan:
    """Return a plan with the costs of a pool; infinite where a kernel has none."""
    costs = [pool.cost(kernel) for kernel in plan.partitioning.kernels]
    usable = tuple(math.inf if isinstance(cost, Unmeasured) or cost == INVALID else cost for cost in costs)
    return dataclasses.replace(plan, costs_us=usable)


def kept(plans: Sequence[Plan], pool: CandidatePool) -> Plan:
    """Return the plan that `optimize` keeps if its race finds of each plan what the long run says.

    Args:
        plans: Those that are timed end to end.
        pool: Has the long-run costs.
    """
    priced = {plan.name: at_costs(plan, pool) for plan in plans}
    timed = [
        Timed(
            name=name,
            single=plan.single,
            kernels=len(plan.kernels),
            toolchains=len(plan.toolchains),
            targets=plan.targets,
            rounds_us=((plan.predicted_us,),),
        )
        for name, plan in priced.items()
        if math.isfinite(plan.predicted_us)
    ]
    return priced[decide(timed, seed=0).winner]


def best_single(plans: Iterable[Plan], pool: CandidatePool) -> Plan:
    """Return the cheapest single-toolchain plan at the costs of a pool."""
    singles = (at_costs(plan, pool) for plan in plans if plan.single)
    return min(singles, key=lambda plan: (plan.predicted_us, plan.name))


def described(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON: its latency, and the target, operators and cost of each kernel."""
    costs = plan.cost_of
    graph = plan.graph

    def operators(kernel: CandidateKernel) -> str:
        return " ".join(graph.nodes[each].op_type for each in iterate_bits(kernel.sub_graph.nodes & graph.needs_kernel))

    kernels = [
        {"target": each.target.name, "operators": operators(each), "us": round(costs[each.sub_graph.nodes], 1)}
        for each in plan.kernels
    ]
    return {"us": round(plan.predicted_us, 1), "kernels": kernels}


def distinct_candidates(bench: Bench) -> int:
    """Count the distinct candidates that the exhaustive search would measure, without measuring any.

    Cuts are placed by estimated work. The search itself places them by measured costs, in equal number, and adds the
    few merged neighbours of its best plans.
    """
    proposals = propose_all(bench.rules, bench.workload.graph, candidate_bounds(EXHAUSTIVE), cuts=None)
    pool = known_pool(bench, MemoryStore(), proposals.candidates)
    return pool.distinct()
