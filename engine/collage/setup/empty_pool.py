"""A pool without candidates: what candidates, dispatch and copies cost on a machine."""

from __future__ import annotations

from collage.setup.dispatch import DispatchTime, dispatch_us
from collage.store import TuningStore
from collage_core.candidates.costs import Costs, KnownCosts
from collage_core.candidates.pool import CandidatePool
from collage_core.contract import Host
from collage_core.errors import UsageError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.search import CopyCosts


def empty_pool(
    graph: DataflowGraph, source: KnownCosts, database: TuningStore, host: Host, copies: CopyCosts | None
) -> CandidatePool:
    """Return a pool for this machine; what dispatch costs is measured once.

    Args:
        graph: The model.
        source: What kernels cost.
        database: Keeps what dispatch costs.
        host: This machine.
        copies: What copies cost; None where there is no device but the CPU.
    """
    return CandidatePool(graph, Costs(source), dispatch_us(database, host), copies)


def empty_pool_elsewhere(
    graph: DataflowGraph, source: KnownCosts, database: TuningStore, host: Host, copies: CopyCosts | None
) -> CandidatePool:
    """Return a pool for a machine that may be elsewhere; see `empty_pool`.

    Raises:
        UsageError: If it is not known what dispatch costs there.
    """
    known = database.get_document(DispatchTime, host.fingerprint)
    if known is None:
        raise UsageError(
            f"{database.url} does not know what calls cost on {host.fingerprint!r}: optimize a model there first"
        )
    return CandidatePool(graph, Costs(source), known.dispatch_us, copies)
