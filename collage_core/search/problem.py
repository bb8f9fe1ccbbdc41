"""The search problem on plain integers: which candidates cover a graph, independent of ONNX."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from collage_core.contract.target import Target
from collage_core.ir.graph.masks import hashable, iterate_bits
from collage_core.search.copies import DeviceCopies

bits = iterate_bits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchTarget:
    """A target as the search sees it.

    Attributes:
        name: Full name, with options and device; unique in a problem.
        toolchain: Name of its toolchain; plans that tie prefer fewer toolchains.
        mixable: Whether its kernels may share a plan with those of other targets.
        excludes: Toolchains that cannot share a process, and so a plan, with it.
        dispatch_us: Overhead of the runtime's loop per kernel of this target.
        device: Device that runs its kernels and holds their inputs and outputs.
    """

    name: str
    toolchain: str
    mixable: bool = True
    excludes: frozenset[str] = frozenset()
    dispatch_us: float = 0.0
    device: str = "cpu"

    def __post_init__(self) -> None:
        if not 0 <= self.dispatch_us < float("inf"):
            raise ValueError(f"{self.name}: dispatch_us is finite and >= 0, not {self.dispatch_us}")

    @classmethod
    def of(cls, target: Target, dispatch_us: float = 0.0) -> SearchTarget:
        """Make the search's view of a plugin's target.

        Args:
            target: The target.
            dispatch_us: Time the runtime's loop adds per kernel call. Captured kernels are not called by it.
        """
        return cls(
            name=target.name,
            toolchain=target.toolchain,
            mixable=target.mixable,
            excludes=target.excludes,
            dispatch_us=0.0 if target.launch == "graph" else dispatch_us,
            device=target.device,
        )

    def mixes_with(self, other: SearchTarget) -> bool:
        """Return whether kernels of both targets may be in one plan."""
        if self.name == other.name:
            return True
        return (
            self.mixable
            and other.mixable
            and other.toolchain not in self.excludes
            and self.toolchain not in other.excludes
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchCandidate:
    """One kernel that may be in the plan.

    Its ancestors, its descendants and whether it may take part in a cycle follow from the graph, so they are
    derived (`collage_core.search.prepared`) and a caller cannot get them wrong.

    Attributes:
        nodes: Mask of the nodes inside. Host nodes are allowed: they do not count as covered, but their
            inputs must be computed before.
        target: Name of a target of the problem.
        key: Key by which a `CostSource` looks up the cost; equal for structurally equal candidates.
        label: Pattern or composite name, for messages and as the last tie-break but one.
        rank: Tie-break before names: lower wins. For declared priorities.
    """

    nodes: int
    target: str
    key: str
    label: str = ""
    rank: int = 0

    def __hash__(self) -> int:
        return hash((hashable(self.nodes), self.target, self.key, self.label, self.rank))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """Cover every node that needs a kernel by disjoint candidates, without a cycle between them.

    Nodes are numbered in a topological order. A plan is legal if its targets mix pairwise and its kernels can
    be ordered for execution. Host nodes need no kernel and are free: the runtime computes them wherever their
    values are needed, so two candidates may hold the same one.

    Attributes:
        node_count: Number of nodes.
        needs_kernel: Mask of the nodes that must be covered; the rest is host work.
        ancestors: Per node, mask of its strict ancestors.
        descendants: Per node, mask of its strict descendants.
        targets: The targets of the candidates.
        candidates: In any order; the plan found does not depend on it.
        copies: Values that may be copied between devices, and the costs; None if there is one device only.
    """

    node_count: int
    needs_kernel: int
    ancestors: tuple[int, ...]
    descendants: tuple[int, ...]
    targets: tuple[SearchTarget, ...]
    candidates: tuple[SearchCandidate, ...]
    copies: DeviceCopies | None = None

    def __post_init__(self) -> None:
        count = self.node_count
        if len(self.ancestors) != count or len(self.descendants) != count:
            raise ValueError(f"{count} nodes need as many ancestor and descendant masks")
        if any(ancestors >> node for node, ancestors in enumerate(self.ancestors)):
            raise ValueError("nodes must be numbered in a topological order")
        if self.needs_kernel >> count:
            raise ValueError("needs_kernel has nodes outside the graph")
        names = {target.name for target in self.targets}
        if len(names) != len(self.targets):
            raise ValueError("two targets have the same name")
        for candidate in self.candidates:
            if candidate.target not in names:
                raise ValueError(f"candidate {candidate.key!r} names no target of the problem")
            if candidate.nodes >> count or candidate.nodes < 0:
                raise ValueError(f"candidate {candidate.key!r} has nodes outside the graph")
        for value in self.copies.values if self.copies is not None else ():
            if value.producer is not None and not self.needs_kernel >> value.producer & 1:
                raise ValueError(f"node {value.producer} computes a value and needs no kernel")
            if value.readers >> count:
                raise ValueError("a value is read by nodes outside the graph")

    @classmethod
    def from_predecessors(
        cls,
        predecessors: Sequence[Iterable[int]],
        *,
        targets: Iterable[SearchTarget],
        candidates: Iterable[SearchCandidate],
        host: int = 0,
        copies: DeviceCopies | None = None,
    ) -> SearchProblem:
        """Build the problem of a graph given by each node's direct predecessors.

        Args:
            predecessors: Per node, the nodes it reads; all of lower index.
            targets: The targets.
            candidates: The candidates.
            host: Mask of host nodes.
            copies: Values shared between devices, and the costs of copying them.
        """
        count = len(predecessors)
        ancestors = [0] * count
        descendants = [0] * count
        for node, sources in enumerate(predecessors):
            for source in sources:
                ancestors[node] |= ancestors[source] | 1 << source
        for node in reversed(range(count)):
            for source in predecessors[node]:
                descendants[source] |= descendants[node] | 1 << node
        return cls(
            node_count=count,
            needs_kernel=((1 << count) - 1) & ~host,
            ancestors=tuple(ancestors),
            descendants=tuple(descendants),
            targets=tuple(targets),
            candidates=tuple(candidates),
            copies=copies,
        )


def compatible_sets(targets: Iterable[SearchTarget]) -> tuple[frozenset[str], ...]:
    """List every maximal set of targets that may share a plan, in name order.

    These are the maximal cliques of "mixes with" (Bron and Kerbosch 1973, with a pivot).

    Examples:
        >>> a = SearchTarget(name="a", toolchain="a")
        >>> b = SearchTarget(name="b", toolchain="b", excludes=frozenset({"c"}))
        >>> c = SearchTarget(name="c", toolchain="c")
        >>> spin = SearchTarget(name="a(spin=true)", toolchain="a", mixable=False)
        >>> [sorted(s) for s in compatible_sets([a, b, c, spin])]
        [['a', 'b'], ['a', 'c'], ['a(spin=true)']]
    """
    ordered = sorted(targets, key=lambda target: target.name)
    friends = {
        one.name: {other.name for other in ordered if other is not one and one.mixes_with(other)} for one in ordered
    }
    found: list[frozenset[str]] = []

    def grow(chosen: frozenset[str], open_: set[str], done: set[str]) -> None:
        if not open_ and not done:
            if chosen:
                found.append(chosen)
            return
        pivot = max(sorted(open_ | done), key=lambda name: len(friends[name] & open_))
        for name in sorted(open_ - friends[pivot]):
            grow(chosen | {name}, open_ & friends[name], done & friends[name])
            open_ = open_ - {name}
            done = done | {name}

    grow(frozenset(), set(friends), set())
    return tuple(sorted(found, key=sorted))
