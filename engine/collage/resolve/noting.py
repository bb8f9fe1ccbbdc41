"""Note what solving a model again elsewhere needs: the machine, and what each target takes of the model."""

from __future__ import annotations

from collections.abc import Mapping

from collage.resolve.saved_machine import machine_name, note_machine
from collage.resolve.saved_takes import SavedTake
from collage.setup.toolchains import Toolchains
from collage.store import Removal, TuningStore, toolchain_of
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Host
from collage_core.fusion import SubGraph
from collage_core.ir.graph.dataflow import DataflowGraph


def graph_hash(graph: DataflowGraph) -> str:
    """Return the structural hash of all of a graph that needs kernels; empty if nothing does."""
    return SubGraph(graph, graph.all_mask).structural_hash if graph.needs_kernel else ""


def note(toolchains: Toolchains, proposals: Mapping[str, Proposals]) -> None:
    """Keep what targets take of a model; what is kept already is not written again.

    What was kept of targets that their toolchains no longer have here goes: plans with them cannot be run here.

    Args:
        toolchains: Those at work.
        proposals: What each target proposed, by its name.
    """
    database, host = toolchains.database, toolchains.host
    note_machine(database, host)
    places = {target.name: place for status in toolchains.statuses for place, target in enumerate(status.targets)}
    for name, each in proposals.items():
        take = SavedTake.of(each, toolchains.plugins.get(each.rule.target.toolchain, ""), places[name])
        if take is not None:
            _note_take(database, host, each.graph, take)
    graphs = {graph_hash(each.graph) for each in proposals.values()}
    asked = {status.toolchain.name for status in toolchains.statuses if status.targets}
    gone = {
        (kind, name)
        for graph in graphs
        for kind, name in database.document_keys(SavedTake.KIND, SavedTake.name(graph, machine_name(host), ""))
        if (target := SavedTake.target_of(name)) not in places and toolchain_of(target) in asked
    }
    if gone:
        database.remove(Removal(documents=frozenset(gone)))


def _note_take(database: TuningStore, host: Host, graph: DataflowGraph, take: SavedTake) -> None:
    name = SavedTake.name(graph_hash(graph), machine_name(host), take.target.name)
    if database.get_document(SavedTake, name) != take:
        database.put_document(name, take)


def takes_of(database: TuningStore, host: Host, graph: DataflowGraph) -> tuple[SavedTake, ...]:
    """Return what targets of a machine take of a model, as noted there, in the order in which `optimize` has them."""
    beginning = SavedTake.name(graph_hash(graph), machine_name(host), "")
    names = [name for _, name in database.document_keys(SavedTake.KIND, beginning)]
    found = (database.get_document(SavedTake, name) for name in names)
    return tuple(sorted((each for each in found if each), key=lambda each: (each.target.toolchain, each.place)))
