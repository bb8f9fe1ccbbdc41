"""Profiles of kernels in the tuning database, for all candidates of one structure."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import ClassVar

from collage.measure.driver.records import DEADLINE_REASON
from collage.store.records import RecordKey, content_id, of_any_plugin, to_json
from collage_core.contract import KernelFunction, KernelProfile, ProfiledPart, UnattributedTime
from collage_core.fusion.kernel import kernel_function
from collage_core.fusion.sub_graph import SubGraph
from collage_core.ir.graph.masks import iterate_bits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedPart:
    """A `ProfiledPart` without names.

    Attributes:
        positions: Positions of the part's nodes in the kernel function, which are the same in structural twins.
        time_us: As in `ProfiledPart`.
        conversion_us: As in `ProfiledPart`.
    """

    positions: tuple[int, ...]
    time_us: float
    conversion_us: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavedProfile:
    """What came of profiling a kernel: a profile, or the failure to make one.

    Attributes:
        variant: Variant that was profiled, or was to be; empty if the failed request named none.
        seconds: Time it took, with building the kernel.
        parts: Parts of the profile; none if it failed.
        unattributed: As in `KernelProfile`.
        failure: Why there is no profile; empty if there is one.
        deadline_s: Limit it was made under, in seconds.
        plugin: Version of the plugin; empty if unknown.
    """

    KIND: ClassVar[str] = "profile"
    VERSION: ClassVar[int] = 1

    variant: str
    seconds: float
    parts: tuple[SavedPart, ...]
    unattributed: tuple[UnattributedTime, ...]
    failure: str
    deadline_s: float
    plugin: str = ""

    def __post_init__(self) -> None:
        if bool(self.parts) == bool(self.failure):
            raise ValueError("a profile has parts, or it failed")

    def serves(self, variant: str | None, deadline_s: float, plugin: str) -> bool:
        """Return whether it says something of a variant, or of any.

        Args:
            variant: Name of the variant; None for any.
            deadline_s: Present limit, in seconds: what exceeded a shorter one may pass.
            plugin: Present version of the plugin: a failure of another one says nothing.
        """
        ran_late = self.failure.startswith(DEADLINE_REASON) and deadline_s > self.deadline_s
        mended = bool(self.failure) and plugin != self.plugin
        return variant in (None, self.variant) and not ran_late and not mended


def document_name(key: RecordKey) -> str:
    """Return the name of the document with the profile of a kernel, which serves every version of the plugin."""
    return content_id(to_json(of_any_plugin(key)))


def saved_parts(profile: KernelProfile, function: KernelFunction) -> tuple[SavedPart, ...]:
    """Return a profile's parts by positions.

    Args:
        profile: Names nodes of the function.
        function: The function.
    """
    positions = {str(node.name): position for position, node in enumerate(function.model.graph)}
    return tuple(
        SavedPart(
            positions=tuple(sorted(positions[name] for name in part.nodes)),
            time_us=part.time_us,
            conversion_us=part.conversion_us,
        )
        for part in profile.parts
    )


def profile_of(saved: SavedProfile, sub_graph: SubGraph) -> KernelProfile | None:
    """Return a saved profile by the names of a candidate's nodes in its graph.

    A composite, which is one node of the function, is all of its nodes. Parts of one original node, of a call that the
    function has inlined, are one part.

    Args:
        saved: A profile of the candidate or of a structural twin.
        sub_graph: The candidate.

    Returns:
        The profile; None if it is not of such a function.
    """
    originals = _originals(sub_graph, kernel_function(sub_graph, "profiled"))
    parts: dict[int, int] = {}
    times: dict[int, float] = defaultdict(float)
    conversions: dict[int, float] = defaultdict(float)
    for number, part in enumerate(saved.parts):
        if not all(0 <= position < len(originals) for position in part.positions):
            return None
        nodes = [index for position in part.positions for index in originals[position]]
        home = next((parts[index] for index in nodes if index in parts), number)
        parts |= {index: home for index in nodes if index not in parts}
        times[home] += part.time_us
        conversions[home] += part.conversion_us
    names: dict[int, list[str]] = defaultdict(list)
    for index, home in sorted(parts.items()):
        names[home].append(sub_graph.graph.names[index])
    return KernelProfile(
        parts=tuple(
            ProfiledPart(nodes=tuple(nodes), time_us=times[home], conversion_us=conversions[home])
            for home, nodes in names.items()
        ),
        unattributed=saved.unattributed,
    )


def _originals(sub_graph: SubGraph, function: KernelFunction) -> list[list[int]]:
    """Return the indices of the original nodes of each node of a function; values keep their names when extracted."""
    graph = sub_graph.graph
    producers = {
        str(value.name): index
        for index in iterate_bits(sub_graph.nodes)
        for value in graph.nodes[index].outputs
        if value.name
    }
    nodes = list(function.model.graph)
    places = {node: place for place, node in enumerate(nodes)}
    found = [[producers[str(v.name)] for v in node.outputs if v.name in producers] for node in nodes]
    for place in reversed(range(len(nodes))):  # inside an inlined call: all that reads it is in there, too
        readers = (reader for value in nodes[place].outputs for reader in value.consumers() if reader in places)
        if not found[place]:
            found[place] = next((found[places[reader]] for reader in readers), [])
    owners = {index: place for place, indices in enumerate(found) for index in indices}
    for index in reversed(list(iterate_bits(sub_graph.nodes))):  # inside a composite: likewise
        reader = next(
            (each for each in iterate_bits(graph.successors[index] & sub_graph.nodes) if each in owners), None
        )
        if index not in owners and reader is not None:
            owners[index] = owners[reader]
            found[owners[reader]].append(index)
    return [sorted(set(indices)) for indices in found]
