"""Believe what each node takes on a target, and learn from what kernels were seen to take.

The belief of a target is a normal distribution over the times of its nodes by themselves, over what it changes that two
neighbours are in one kernel, over what a kernel takes besides, and over what a byte takes that crosses its boundary. A
kernel takes the sum of its nodes' times, of the changes for all neighbours inside it, of what a kernel takes besides,
and of what its bytes take. Each measurement is such a sum plus noise, so the belief after it is again normal (the
Kalman update; C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", section 2.1).

What an unmeasured kernel may take is drawn several times. All times of one draw belong together: the plan that is the
best by them is one that might be the best, and by how much, over all draws, is what there is to gain by looking at it
(W. R. Thompson, "On the Likelihood that One Unknown Probability Exceeds Another", Biometrika 25, 1933).
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from collage_core.ir.graph.masks import hashable
from collage_core.search.normal import Fit, Matrix, Normal, Positions, Vector
from collage_core.search.problem import SearchCandidate, bits

DRAWS: Final = 24
"""Number of draws. On the benchmark of regret, half as many missed plans that these found."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """How far the first belief may be off, as standard deviations.

    Attributes:
        node: Of one node's time, as a share of it, independent of other nodes.
        kind: Shared by all nodes of a kind, as a share of their times.
        target: Shared by all nodes of the target, as a share of their times.
    """

    node: float
    kind: float
    target: float


PROFILED = Doubt(node=0.25, kind=0.1, target=0.05)
"""Doubt about times that the toolchain's own profile gave: of fused operators only the sum is known."""
GUESSED = Doubt(node=0.4, kind=0.8, target=0.5)
"""Doubt about times that come from the number of operations and bytes, or from another target."""

KERNEL_US: Final = 2.0
"""First belief of what a kernel takes besides its nodes, in microseconds."""
_KERNEL_SD_US = 10.0
_US_PER_BYTE, _SD_US_PER_BYTE = 0.0, 2e-5
"""A byte that crosses a kernel's boundary may have to be copied, at 50 GB/s. That its layout has to change is between
neighbours, and known of operators alone.
"""
NOISE: Final = 0.03
"""Standard deviation of a measurement, as a share of it, where nobody knows better."""
_NOISE_US = 1.0
"""What it is besides, in microseconds."""
_LEAST, _LEAST_KERNEL_US = 0.1, 0.5
"""A draw gives a kernel at least this share of what it is believed to take, and this much for what it takes besides.
Otherwise plans of many small kernels look best in every other draw.
"""
_OPTIMISTIC_SHARE, _OPTIMISTIC_SD = 0.3, 3.0
"""An optimistic estimate: so many standard deviations less than believed, and at least this share of that."""
_SURPRISE = 2.0
"""Mean square of how far off measurements are, in standard deviations, above which the first belief is doubted, or the
noise of measurements.
"""
_DOUBTED = tuple(itertools.product((1.0, 2.0, 4.0, 8.0), (1.0, 2.0, 4.0)))[1:]
"""Factors of the first belief's doubts and of the noise, of which the likeliest are taken where both at 1 surprise."""
_UNLIKELY = 5.0
"""Logarithm of how much less likely each doubling of the noise is beforehand: it was measured, doubts were not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """What is believed to change because two neighbours, or two readers of one value, are in one kernel.

    Less than nothing where they are fused or share a change of layout, more where one of them has to take the other's.

    Attributes:
        nodes: The two nodes.
        change_us: The change, in microseconds.
        doubt_us: Its standard deviation.
    """

    nodes: tuple[int, int]
    change_us: float
    doubt_us: float


class TargetBelief:
    """What is believed of one target.

    Where measurements surprise, either the first belief was held too firmly, or they are noisier than their blocks say:
    what disturbs one lasts longer than it, and no sum of parts is all that a kernel takes. Which of both it is, and by
    how much, is chosen by how likely it makes what was measured (its marginal likelihood; Rasmussen and Williams,
    section 5.4.1).

    Args:
        times_us: First belief of each node's time, in microseconds; 0 for host nodes.
        kinds: Kind of work of each node.
        doubts: How far each node's time may be off.
        joints: What changes where neighbours are in one kernel; nothing for those that are not named.
        seed: Of the draws.
    """

    def __init__(
        self,
        times_us: Sequence[float],
        kinds: Sequence[str],
        doubts: Sequence[Doubt],
        joints: Sequence[Joint] = (),
        *,
        seed: int = 0,
    ) -> None:
        if not len(times_us) == len(kinds) == len(doubts):
            raise ValueError("every node has a time, a kind and a doubt")
        times = np.asarray(times_us, dtype=np.float64)
        if not np.isfinite(times).all() or (times < 0).any():
            raise ValueError("times are finite microseconds >= 0")
        own = [doubt.node * time for doubt, time in zip(doubts, times, strict=True)]
        self._after: dict[int, list[tuple[int, int]]] = {}  # by node: its later neighbour, and the joint's position
        self._into: dict[int, list[int]] = {}  # by node: positions of the joints with its earlier neighbours
        for at, joint in enumerate(joints, start=len(times)):
            self._into.setdefault(joint.nodes[1], []).append(at)
            self._after.setdefault(joint.nodes[0], []).append((joint.nodes[1], at))
        size = len(times) + len(joints) + 2
        names = {kind: at for at, kind in enumerate(dict.fromkeys(kinds))}
        # Rows of the factors that nodes share: one for each kind, and one for the target as a whole.
        shared = np.zeros((len(names) + 1, size))
        for node, (kind, doubt) in enumerate(zip(kinds, doubts, strict=True)):
            shared[names[kind], node] = doubt.kind * times[node]
            shared[-1, node] = doubt.target * times[node]
        self._first = Normal.first(
            np.concatenate([times, [joint.change_us for joint in joints], [KERNEL_US, _US_PER_BYTE]]),
            np.square([*own, *(joint.doubt_us for joint in joints), _KERNEL_SD_US, _SD_US_PER_BYTE]),
            shared,
            draws=DRAWS,
            seed=seed,
        )
        self._measurements: tuple[tuple[int, float, float, float], ...] = ()
        self._now, self._fit, self._noisier = self._first, Fit(), 1.0
        self._known: dict[tuple[tuple[int, int], float], tuple[Positions, Vector]] = {}  # features of kernels

    @property
    def noisier(self) -> float:
        """Factor by which measurements turned out noisier than they were said to be; 1 where nothing surprises."""
        return self._noisier

    @property
    def learnt_from(self) -> int:
        """Number of measurements."""
        return len(self._measurements)

    def node_us(self, node: int) -> float:
        """Return the believed time of a node inside a kernel with neighbours that make it no slower; >= 0."""
        gained = sum(min(0.0, float(self._now.mean[at])) for at in self._into.get(node, ()))
        return max(0.0, float(self._now.mean[node]) + gained)

    def change_us(self, one: int, other: int) -> float:
        """Return what is believed to change because two neighbours are in one kernel, in microseconds.

        Args:
            one: The earlier node.
            other: A node that reads its output, or what it reads.
        """
        return float(sum(self._now.mean[at] for node, at in self._after.get(one, ()) if node == other))

    def _features(self, nodes: int, nbytes: float) -> tuple[Positions, Vector]:
        """Return positions in the mean, and by what each counts: nodes, joints, the kernel, its bytes."""
        if (known := self._known.get(key := (hashable(nodes), nbytes))) is not None:
            return known
        inside = list(bits(nodes))
        joints = [at for node in inside for other, at in self._after.get(node, ()) if nodes >> other & 1]
        by = np.ones(len(inside) + len(joints) + 2)
        by[-1] = nbytes
        size = len(self._first.mean)
        found = self._known[key] = np.array([*inside, *joints, size - 2, size - 1]), by
        return found

    def moments(self, nodes: int, nbytes: float) -> tuple[float, float]:
        """Return mean and standard deviation of what a kernel takes, in microseconds.

        Args:
            nodes: Mask of its nodes.
            nbytes: Bytes that cross its boundary.
        """
        mean, variance = self._now.moments(*self._features(nodes, nbytes))
        return mean, math.sqrt(variance)

    def drawn_us(self, kernels: Sequence[tuple[int, float]]) -> Matrix:
        """Return what kernels take by each draw, in microseconds; > 0, a row for each kernel.

        Args:
            kernels: Of each, the mask of its nodes, and the bytes that cross its boundary.
        """
        if not kernels:
            return np.zeros((0, DRAWS))
        positions, weights = zip(*(self._features(*kernel) for kernel in kernels), strict=True)
        at, by = np.concatenate(positions), np.concatenate(weights)
        first = np.cumsum([0, *map(len, positions[:-1])])
        draws = self._now.draws.copy()
        draws[:, -2:] = np.maximum(draws[:, -2:], (_LEAST_KERNEL_US, 0.0))
        least = np.maximum(_LEAST * np.add.reduceat(self._now.mean[at] * by, first), _LEAST_KERNEL_US)
        drawn = [np.maximum(np.add.reduceat(draw[at] * by, first), least) for draw in draws]
        return np.stack(drawn, axis=1)

    def learning(self, measurements: Iterable[tuple[int, float, float, float]]) -> TargetBelief:
        """Return the belief after measurements.

        Args:
            measurements: Of each, the mask of the kernel's nodes, the bytes that cross its boundary, what it took in
                microseconds, and the standard deviation of that as a share of it.
        """
        fresh = tuple(measurements)
        after = copy.copy(self)
        after._measurements = (*self._measurements, *fresh)
        after._now, after._fit = self._learnt(self._now, self._fit, fresh, self._noisier)
        # What surprised at first may not do so among more.
        is_twice = len(after._measurements).bit_length() > len(self._measurements).bit_length()
        if is_twice or after._is_surprised():
            after._choose()
        return after

    def _choose(self) -> None:
        """Set the doubts and the noise to what is likeliest, and learn from all measurements anew."""
        self._now, self._fit = self._learnt(self._first, Fit(), self._measurements, 1.0)
        self._noisier, likeliest = 1.0, self._fit.log_density
        for scale, noisier in _DOUBTED if self._is_surprised() else ():
            now, fit = self._learnt(self._first.doubted(scale), Fit(), self._measurements, noisier)
            likely = fit.log_density - _UNLIKELY * math.log2(noisier)
            if likely > likeliest:
                self._now, self._fit, self._noisier, likeliest = now, fit, noisier, likely

    def _is_surprised(self) -> bool:
        return self._fit.squares > _SURPRISE * len(self._measurements)

    def _learnt(
        self, now: Normal, fit: Fit, measurements: Iterable[tuple[int, float, float, float]], noisier: float
    ) -> tuple[Normal, Fit]:
        """Return the distribution after measurements, and how well it foresaw them.

        Args:
            now: The distribution before.
            fit: How well it foresaw what it knows.
            measurements: As for `learning`.
            noisier: Factor of their noise.
        """
        for nodes, nbytes, cost_us, noise in measurements:
            sd_us = math.hypot(noisier * noise * cost_us, _NOISE_US)
            now, one = now.learning(*self._features(nodes, nbytes), cost_us, sd_us)
            fit += one
        return now, fit


class Beliefs:
    """Estimates of unmeasured candidates from what is believed of each target.

    Args:
        targets: What is believed of each target, by name.
        boundary_bytes: Returns the bytes that cross the boundary of a mask of nodes.

    Examples:
        >>> belief = TargetBelief([100.0, 100.0], ["conv", "conv"], [GUESSED, GUESSED])
        >>> beliefs = Beliefs({"a": belief}, lambda nodes: 0.0)
        >>> beliefs = beliefs.learning([("a", 0b01, 50.0)])
        >>> 50 < beliefs.mean_us("a", 0b10) < 70  # of the same kind, so probably as fast
        True
    """

    def __init__(self, targets: Mapping[str, TargetBelief], boundary_bytes: Callable[[int], float]) -> None:
        self._targets = dict(targets)
        self._boundary_bytes = boundary_bytes
        self._drawn: dict[str, dict[tuple[int, int], Vector]] = {name: {} for name in targets}

    def learning(self, measurements: Iterable[tuple[str, int, float]], noise: float = NOISE) -> Beliefs:
        """Return the beliefs after measurements.

        Args:
            measurements: Of each, the target, the mask of the kernel's nodes, and what it took in microseconds.
            noise: Standard deviation of each, as a share of it.
        """
        by_target: dict[str, list[tuple[int, float, float, float]]] = {}
        for target, nodes, cost_us in measurements:
            by_target.setdefault(target, []).append((nodes, self._boundary_bytes(nodes), cost_us, noise))
        learnt = {target: self._targets[target].learning(each) for target, each in by_target.items()}
        after = Beliefs({**self._targets, **learnt}, self._boundary_bytes)
        after._drawn.update({target: drawn for target, drawn in self._drawn.items() if target not in learnt})
        return after

    @property
    def noisier(self) -> float:
        """Factor by which measurements turned out noisier than they were said to be, by the mean over all of them."""
        each = [(belief.noisier, belief.learnt_from) for belief in self._targets.values()]
        count = sum(learnt_from for _, learnt_from in each)
        return sum(noisier * learnt_from for noisier, learnt_from in each) / count if count else 1.0

    def node_us(self, target: str, node: int) -> float:
        """Return the believed time of a node inside a kernel of a target, in microseconds."""
        return self._targets[target].node_us(node)

    def change_us(self, target: str, one: int, other: int) -> float:
        """Return what is believed to change because two neighbours are in one kernel of a target; microseconds."""
        return self._targets[target].change_us(one, other)

    def mean_us(self, target: str, nodes: int) -> float:
        """Return the believed time of a kernel, in microseconds."""
        return max(0.0, self._targets[target].moments(nodes, self._boundary_bytes(nodes))[0])

    def optimistic_us(self, target: str, nodes: int) -> float:
        """Return what a kernel takes if all goes well: three deviations below its mean, in microseconds; > 0."""
        mean, deviation = self._targets[target].moments(nodes, self._boundary_bytes(nodes))
        return max(mean - _OPTIMISTIC_SD * deviation, _OPTIMISTIC_SHARE * mean, _LEAST_KERNEL_US)

    def drawn_us(self, candidates: Sequence[SearchCandidate]) -> Matrix:
        """Return what kernels take by each of the `DRAWS` draws, in microseconds; > 0, a row for each draw."""
        lacking: dict[str, list[int]] = {}
        for candidate in candidates:
            if hashable(candidate.nodes) not in self._drawn[candidate.target]:
                lacking.setdefault(candidate.target, []).append(candidate.nodes)
        for target, masks in lacking.items():
            drawn = self._targets[target].drawn_us([(nodes, self._boundary_bytes(nodes)) for nodes in masks])
            self._drawn[target].update(zip(map(hashable, masks), drawn, strict=True))
        found = np.empty((len(candidates), DRAWS))
        for row, candidate in zip(found, candidates, strict=True):
            row[:] = self._drawn[candidate.target][hashable(candidate.nodes)]
        return found.T
