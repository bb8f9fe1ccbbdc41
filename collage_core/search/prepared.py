"""Data that the search needs of a candidate besides its cost, derived once per problem."""

from __future__ import annotations

import dataclasses

from collage_core.errors import SearchError
from collage_core.ir.graph.masks import hashable
from collage_core.search.copy_model import CopyModel, Traffic
from collage_core.search.problem import SearchCandidate, SearchProblem, bits


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A candidate's role in the search; candidates of one shape are interchangeable.

    Equal shapes are one object: comparing masks of thousands of bits for every candidate would cost more than
    the search.

    Attributes:
        kernels: The nodes it covers: those inside that need a kernel.
        touched: `kernels`, and the watched host nodes inside.
        before: Nodes needing a kernel that must have run before it.
        after: Nodes needing a kernel, and watched host nodes, that must run after it.
        tangled: Whether it can be part of a cycle of candidates. It cannot if one covered node has all of
            `before` as ancestors and all of `after` as descendants: any kernel that had to run both before and
            after it would surround that node, and not be convex.
    """

    kernels: int
    touched: int
    before: int
    after: int
    tangled: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Prepared:
    """A problem with the shapes of its candidates.

    Attributes:
        problem: The problem.
        shapes: Shape of each candidate of the problem; None for one that covers nothing.
        order: Position of each candidate in the canonical order, which decides between equal plans.
        copies: Costs of copies between devices; None if there is one device only.
        traffic: Relation of each candidate to values; None if there is one device, or no shape.
        roles: A number for each candidate; those of one shape and one traffic have the same.
    """

    problem: SearchProblem
    shapes: tuple[Shape | None, ...]
    order: tuple[int, ...]
    copies: CopyModel | None
    traffic: tuple[Traffic | None, ...]
    roles: tuple[int, ...]


def _canonical(problem: SearchProblem) -> tuple[int, ...]:
    toolchains = {target.name: target.toolchain for target in problem.targets}

    def names(candidate: SearchCandidate) -> tuple[int, str, str, str, int, str]:
        target = candidate.target
        toolchain = toolchains[target]
        return (candidate.rank, toolchain, target, candidate.label, candidate.nodes, candidate.key)

    place = {c: at for at, c in enumerate(sorted(set(problem.candidates), key=names))}
    return tuple(place[candidate] for candidate in problem.candidates)


def prepare(problem: SearchProblem | Prepared) -> Prepared:
    """Derive the shape of every candidate.

    Raises:
        SearchError: If a candidate is not convex: a node outside must run both after and before it.
        ValueError: If the cost of a copy is NaN or negative.
    """
    if isinstance(problem, Prepared):
        return problem
    needs, ancestors, descendants = problem.needs_kernel, problem.ancestors, problem.descendants
    raw: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    names = [hashable(candidate.nodes) for candidate in problem.candidates]
    watched = 0
    for name, candidate in zip(names, problem.candidates, strict=True):
        if name in raw:
            continue
        nodes = candidate.nodes
        kernels = nodes & needs
        before = after = core = 0
        for node in bits(nodes):
            before |= ancestors[node]
            if kernels >> node & 1:
                after |= descendants[node]
                core |= ancestors[node]
        if before & after & ~nodes:
            outside = list(bits(before & after & ~nodes))
            raise SearchError(
                f"candidate {candidate.key!r} of {candidate.target} on nodes {list(bits(nodes))} is not "
                f"convex: nodes {outside} lie on a path that leaves it and comes back"
            )
        raw[name] = nodes, kernels, before, after
        # A host node at the end of a candidate may wait for more than the covered nodes do (a Reshape whose
        # shape is computed elsewhere). Only then does it matter to others which candidate holds it.
        if before & needs & ~core & ~kernels:
            watched |= nodes & ~needs
    known: dict[object, Shape] = {}
    shapes = {name: _shape(problem, watched, *parts, known) for name, parts in raw.items()}
    found = tuple(shapes[name] for name in names)
    copies = None if problem.copies is None else CopyModel(problem, problem.copies)
    if copies is not None and len(copies.devices) == 1:
        copies = None
    traffic = (None,) * len(found) if copies is None else copies.traffics()
    roles: dict[tuple[Shape | None, Traffic | None], int] = {}
    return Prepared(
        problem=problem,
        shapes=found,
        order=_canonical(problem),
        copies=copies,
        traffic=traffic,
        roles=tuple(roles.setdefault(role, len(roles)) for role in zip(found, traffic, strict=True)),
    )


def _shape(
    problem: SearchProblem,
    watched: int,
    nodes: int,
    kernels: int,
    before: int,
    after: int,
    known: dict[object, Shape],
) -> Shape | None:
    if not kernels:
        return None
    before &= problem.needs_kernel & ~nodes
    touched = nodes & (kernels | watched)
    key = (hashable(kernels), hashable(touched), before)
    shape = known.get(key)
    if shape is None:
        # A watched host node inside stays in `after`: it may be in other candidates too.
        after &= (problem.needs_kernel | watched) & ~kernels
        tangled = bool(before and after) and not any(
            not before & ~problem.ancestors[node] and not after & ~problem.descendants[node]
            for node in reversed(list(bits(kernels)))
        )
        shape = Shape(kernels=kernels, touched=touched, before=before, after=after, tangled=tangled)
        known[key] = shape
    return shape
