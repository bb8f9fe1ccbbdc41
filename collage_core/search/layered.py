"""Shortest path through partial plans, one layer per lowest uncovered node: decision 4 of docs/design.

Every kernel added covers the lowest uncovered node, so that node's number only grows: states are worked off in
its order, and each is final when its turn comes. Where no candidate spans a position, all states of that layer
are one: the problem splits there by itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from collage_core.search.constraints import Pairs, advance
from collage_core.search.copy_model import CopyModel, Places, Traffic
from collage_core.search.prepared import Shape

KERNEL_BITS = 20
"""Bits by which a path's cost is shifted left to add the number of kernels, so that one integer compares both."""

Step = Callable[[Pairs, Shape, int], Pairs | None]
Key = Callable[[int, Pairs, Places], object]


def state_key(covered: int, pairs: Pairs, places: Places) -> object:
    """Return the key of a state in its layer: nodes covered, and constraints and places still relevant."""
    if places:
        return (covered, pairs, places)
    return (covered, pairs) if pairs else covered


def host_flags(node_count: int, needs_kernel: int) -> bytes:
    """Return a byte for each node, 1 for host nodes; one more at the end is 0."""
    return bytes(not needs_kernel >> node & 1 for node in range(node_count)) + b"\0"


def continued(low: int, covered: int, host: bytes) -> tuple[int, int]:
    """Return the lowest node left uncovered, and the mask of covered nodes relative to it.

    Args:
        low: Layer before.
        covered: Mask of the covered nodes relative to it.
        host: See `host_flags`: these nodes are passed over.
    """
    shift = (~covered & (covered + 1)).bit_length() - 1
    while host[low + shift]:
        covered |= 1 << shift
        shift = (~covered & (covered + 1)).bit_length() - 1
    return low + shift, covered >> shift


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A candidate that may be chosen, with its price.

    Attributes:
        index: Its position in the problem.
        shape: Nodes it covers and orders.
        value: Its cost in picoseconds (shifted by `KERNEL_BITS`) plus one for the kernel.
        toolchain: Mask with the one bit of its toolchain.
        order: Its position in the canonical order.
        low: The lowest node it covers.
        kernels: Mask of the nodes it covers, relative to `low`.
        traffic: Its relation to values; None if there is one device.
    """

    index: int
    shape: Shape
    value: int
    toolchain: int
    order: int
    low: int
    kernels: int
    traffic: Traffic | None = None


class Path:
    """A partial plan: its last move and the path before it. The empty plan has no move."""

    __slots__ = ("covered", "move", "pairs", "parent", "places", "toolchains", "value")

    def __init__(
        self,
        value: int,
        toolchains: int,
        covered: int,
        pairs: Pairs,
        move: Move | None = None,
        parent: Path | None = None,
        places: Places = (),
    ) -> None:
        self.value = value
        self.toolchains = toolchains
        self.covered = covered  # relative to the layer: bit 0 is its lowest uncovered node
        self.pairs = pairs
        self.move = move
        self.parent = parent
        self.places = places

    def moves(self) -> list[Move]:
        """Return all moves, first to last."""
        found: list[Move] = []
        path: Path | None = self
        while path is not None and path.move is not None:
            found.append(path.move)
            path = path.parent
        return found[::-1]

    def precedes(self, other: Path) -> bool:
        """Return whether these moves come first in canonical order, compared from the first move on.

        Both paths have the same number of moves: only paths of equal value are compared.
        """
        mine: Path | None = self
        theirs: Path | None = other
        first = False
        while mine is not theirs and mine is not None and theirs is not None:
            if mine.move is None or theirs.move is None:
                break
            if mine.move.order != theirs.move.order:
                first = mine.move.order < theirs.move.order
            mine, theirs = mine.parent, theirs.parent
        return first


class Layer:
    """The states of one lowest uncovered node, each with the best paths to it.

    More than one path is kept only for ties in cost and number of kernels with different toolchains: the remaining
    decisions determine which of them ends with fewer toolchains.
    """

    __slots__ = ("best", "ties")

    def __init__(self) -> None:
        self.best: dict[object, Path] = {}
        self.ties: dict[object, list[Path]] = {}

    def offer(self, key: object, path: Path) -> None:
        """Keep `path` if it is among the best to its state."""
        known = self.best.get(key)
        if known is None or path.value < known.value:
            self.best[key] = path
            if self.ties:
                self.ties.pop(key, None)
        elif path.value == known.value:
            self._tie(key, path)

    def _tie(self, key: object, path: Path) -> None:
        rivals = [self.best[key], *self.ties.pop(key, ())]
        if any(_as_good(rival, path) for rival in rivals):
            kept = rivals
        else:
            kept = [rival for rival in rivals if not _as_good(path, rival)] + [path]
        self.best[key] = kept[0]
        if len(kept) > 1:
            self.ties[key] = kept[1:]

    def paths(self) -> Iterable[Path]:
        """Yield all paths kept."""
        yield from self.best.values()
        for tied in self.ties.values():
            yield from tied


def _as_good(one: Path, other: Path) -> bool:
    """Return whether `one` is canonically as good as `other` of equal value, for every continuation."""
    return not one.toolchains & ~other.toolchains and not other.precedes(one)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of a sweep over the layers.

    Attributes:
        path: The best whole plan; None if there is none within the limits.
        states: States expanded.
        complete: Whether every state was expanded that could be part of a best plan.
        stuck: Layers with states that have no outgoing move.
    """

    path: Path | None
    states: int
    complete: bool
    stuck: tuple[int, ...]


class Sweep:
    """The moves of one problem, prepared for the search.

    `step` and `key` make the search exact for kernels with several exits; tests replace them to demonstrate this.
    """

    def __init__(
        self,
        node_count: int,
        needs_kernel: int,
        moves: Iterable[Move],
        *,
        step: Step = advance,
        key: Key = state_key,
        copies: CopyModel | None = None,
    ) -> None:
        self._count = node_count
        self._needs = needs_kernel
        self._host_nodes = ((1 << node_count) - 1) & ~needs_kernel
        self._host = host_flags(node_count, needs_kernel)
        self._moves: list[list[Move]] = [[] for _ in range(node_count)]
        for move in moves:
            self._moves[move.low].append(move)
        self._step = step
        self._key = key
        self._copies = copies

    def run(
        self,
        *,
        max_states: int,
        width: int | None = None,
        worst: int | None = None,
        reduced: dict[int, int] | None = None,
    ) -> Outcome:
        """Expand the layers in order.

        Args:
            max_states: Give up when more would be expanded.
            width: Keep only so many best states per layer; then `complete` tells whether any was left out.
            worst: Leave out paths of higher value.
            reduced: Values by move index to use instead of the moves' own.
        """
        layers: list[Layer | None] = [None] * (self._count + 1)
        start = 0
        while self._host[start]:
            start += 1
        layers[start] = Layer()
        due, places = (0, ()) if self._copies is None else self._copies.start()
        if due is not None:
            first = Path(due << KERNEL_BITS, 0, 0, (), places=places)
            layers[start].offer(self._key(0, (), places), first)  # type: ignore[union-attr]
        states = 0
        complete = True
        stuck: list[int] = []
        for low in range(start, self._count):
            layer, layers[low] = layers[low], None
            if layer is None:
                continue
            if width is not None and len(layer.best) > width:
                complete = False
                kept = sorted(layer.best, key=lambda key: layer.best[key].value)[:width]
                layer.best = {key: layer.best[key] for key in kept}
            if self._copies is not None and len(layer.best) > 1:
                _drop_hopeless(layer, self._copies)
            states += len(layer.best)
            if states > max_states:
                return Outcome(path=None, states=states, complete=False, stuck=())
            if self._expand(low, layer, layers, worst, reduced):
                stuck.append(low)
        last = layers[self._count]
        best: Path | None = None
        for path in last.paths() if last is not None else ():
            if best is None or canonically_less(path, best):
                best = path
        return Outcome(path=best, states=states, complete=complete, stuck=tuple(stuck))

    def _expand(
        self,
        low: int,
        layer: Layer,
        layers: list[Layer | None],
        worst: int | None,
        reduced: dict[int, int] | None,
    ) -> bool:
        """Add every path's continuations to later layers; return whether some state had none."""
        host, key_of, step, copies = self._host, self._key, self._step, self._copies
        stuck = False
        moves = [
            (m.kernels, m, m.value if reduced is None else reduced[m.index], m.shape, m.shape.tangled)
            for m in self._moves[low]
        ]
        for key, path in layer.best.items():
            covered, pairs, value = path.covered, path.pairs, path.value
            tied = layer.ties.get(key) if layer.ties else None
            alive = False
            for kernels, move, price, shape, tangled in moves:
                if kernels & covered:
                    continue
                cost = value + price
                now = covered | kernels
                if pairs or tangled:
                    uncovered = self._needs & ~((1 << low) - 1 | now << low) | self._host_nodes
                    after = step(pairs, shape, uncovered)
                    if after is None:
                        continue
                else:
                    after = ()
                places: Places = ()
                if copies is not None and move.traffic is not None:
                    moved = copies.advance(path.places, move.traffic, low, now)
                    if moved is None:
                        continue
                    cost += moved[0] << KERNEL_BITS
                    places = moved[1]
                alive = True
                if worst is not None and cost > worst:
                    continue
                layer_at, now = continued(low, now, host)
                there = layers[layer_at]
                if there is None:
                    there = layers[layer_at] = Layer()
                state = key_of(now, after, places)
                known = there.best.get(state)
                if known is not None and known.value < cost:
                    continue
                toolchain = move.toolchain
                there.offer(state, Path(cost, path.toolchains | toolchain, now, after, move, path, places))
                for rival in tied or ():
                    tied_path = Path(cost, rival.toolchains | toolchain, now, after, move, rival, places)
                    there.offer(state, tied_path)
            stuck |= not alive
        return stuck


def _drop_hopeless(layer: Layer, copies: CopyModel) -> None:
    """Drop states dominated by one that covers the same nodes, if its lead exceeds all copies still due.

    This is sound: every continuation of one state is possible from the other, and costs at most `at_most_more`
    more there.
    """
    leaders: dict[tuple[int, Pairs], Path] = {}
    for path in layer.best.values():
        leader = leaders.get((path.covered, path.pairs))
        if leader is None or path.value < leader.value:
            leaders[path.covered, path.pairs] = path
    for key, path in list(layer.best.items()):
        leader = leaders[path.covered, path.pairs]
        ahead = path.value - leader.value
        more = copies.at_most_more(leader.places, path.places) if ahead else None
        if more is not None and ahead > more << KERNEL_BITS:
            del layer.best[key]
            layer.ties.pop(key, None)


def canonically_less(one: Path, other: Path) -> bool:
    """Compare whole plans by cost, then number of kernels, number of toolchains, and names."""
    mine = (one.value, one.toolchains.bit_count())
    theirs = (other.value, other.toolchains.bit_count())
    return mine < theirs or (mine == theirs and one.precedes(other))
