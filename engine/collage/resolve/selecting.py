"""Select whose targets a plan for a machine elsewhere may use: of those that the store knows there."""

from __future__ import annotations

from collage.resolve.noting import takes_of
from collage.resolve.saved_takes import SavedTake
from collage.setup.settings import SetupChoices
from collage.store import TuningStore
from collage_core.contract import Host
from collage_core.errors import UsageError, did_you_mean
from collage_core.ir.graph.dataflow import DataflowGraph


def selected_takes(
    store: TuningStore, host: Host, graph: DataflowGraph, choices: SetupChoices
) -> tuple[SavedTake, ...]:
    """Return what the targets take of a model that the user selects, in the order in which `optimize` has them.

    Args:
        store: What is known.
        host: The machine.
        graph: The model.
        choices: Which toolchains take part.

    Raises:
        UsageError: If none is left, or a toolchain is named of which nothing is known.
    """
    takes = takes_of(store, host, graph)
    if not takes:
        raise UsageError(f"{store.url} knows nothing of this model on {host.fingerprint!r}: optimize it there first")
    known = sorted({take.target.toolchain for take in takes})
    selection = choices.selection
    for spelling in selection.wanted or ():
        if spelling.toolchain not in known:
            said = f"{store.url} knows nothing of this model with {spelling.toolchain} on {host.fingerprint!r}"
            raise UsageError(f"{said}; it knows {', '.join(known)}{did_you_mean(spelling.toolchain, known)}")
    found = tuple(take for take in takes if not selection.reason_against(take.target))
    if not found:
        raise UsageError(f"no target is left of what {store.url} knows there: {', '.join(known)}")
    return found
