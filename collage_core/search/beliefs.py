"""Believe what each node takes on a target, and learn from what kernels were seen to take.

The belief of a target is a normal distribution over the times of its nodes by themselves, over what it changes that two
neighbours are in one kernel, over what a kernel takes besides, and over what a byte takes that crosses its boundary. A
kernel takes the sum of its nodes' times, of the changes for all neighbours inside it, of what a kernel takes besides,
and of what its bytes take. Each measurement is such a sum plus noise, so the belief after it is again normal (the
Kalman update; C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", section 2.1).

An unmeasured kernel is estimated by its mean less a share of its standard deviation. A search by such estimates looks
at what may be fast, and stops looking where it is known not to be (N. Srinivas and others, "Gaussian Process
Optimization in the Bandit Setting", ICML 2010, with the sign turned, because here small is good).
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from collage_core.search.problem import SearchCandidate, bits

_Vector = np.ndarray[Any, np.dtype[np.float64]]
_Positions = np.ndarray[Any, np.dtype[np.intp]]


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
_NOISE, _NOISE_US = 0.03, 1.0
"""Standard deviation of a measurement, as a share of it and in microseconds."""
_SURPRISE = 2.0
"""Mean square of how far off measurements are, in standard deviations, above which the first belief is doubted."""
_SCALES = (1.0, 2.0, 4.0, 8.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Joint:
    """What is believed to change because two neighbours are in one kernel.

    Less than nothing where they are fused, more where one of them has to take the other's layout.

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

    Where measurements surprise, the first belief was held too firmly: its doubts are doubled until they do not.

    Args:
        times_us: First belief of each node's time, in microseconds; 0 for host nodes.
        kinds: Kind of work of each node.
        doubts: How far each node's time may be off.
        joints: What changes where neighbours are in one kernel; nothing for those that are not named.
    """

    def __init__(
        self,
        times_us: Sequence[float],
        kinds: Sequence[str],
        doubts: Sequence[Doubt],
        joints: Sequence[Joint] = (),
    ) -> None:
        if not len(times_us) == len(kinds) == len(doubts):
            raise ValueError("every node has a time, a kind and a doubt")
        times = np.asarray(times_us, dtype=np.float64)
        if not np.isfinite(times).all() or (times < 0).any():
            raise ValueError("times are finite microseconds >= 0")
        own = [doubt.node * time for doubt, time in zip(doubts, times, strict=True)]
        self._nodes = len(times)
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
        self._first = _Normal(
            mean=np.concatenate([times, [joint.change_us for joint in joints], [KERNEL_US, _US_PER_BYTE]]),
            own=np.square([*own, *(joint.doubt_us for joint in joints), _KERNEL_SD_US, _SD_US_PER_BYTE]),
            shared=shared,
            seen=np.zeros((0, size)),
        )
        self._measurements: tuple[tuple[int, float, float], ...] = ()
        self._now = self._first

    def node_us(self, node: int) -> float:
        """Return the believed time of a node inside a kernel with neighbours that make it no slower; >= 0."""
        gained = sum(min(0.0, float(self._now.mean[at])) for at in self._into.get(node, ()))
        return max(0.0, float(self._now.mean[node]) + gained)

    def change_us(self, one: int, other: int) -> float:
        """Return what is believed to change because two neighbours are in one kernel, in microseconds.

        Args:
            one: The earlier node.
            other: A node that reads its output.
        """
        return float(sum(self._now.mean[at] for node, at in self._after.get(one, ()) if node == other))

    def _features(self, nodes: int, nbytes: float) -> tuple[_Positions, _Vector]:
        """Return positions in the mean, and by what each counts: nodes, joints, the kernel, its bytes."""
        inside = list(bits(nodes))
        joints = [at for node in inside for other, at in self._after.get(node, ()) if nodes >> other & 1]
        by = np.ones(len(inside) + len(joints) + 2)
        by[-1] = nbytes
        size = len(self._first.mean)
        return np.array([*inside, *joints, size - 2, size - 1]), by

    def moments(self, nodes: int, nbytes: float) -> tuple[float, float]:
        """Return mean and standard deviation of what a kernel takes, in microseconds.

        Args:
            nodes: Mask of its nodes.
            nbytes: Bytes that cross its boundary.
        """
        mean, variance = self._now.moments(*self._features(nodes, nbytes))
        return mean, math.sqrt(variance)

    def hoped_us(self, nodes: int, nbytes: float, optimism: float) -> float:
        """Return what a kernel takes if its nodes are faster than believed; what it takes besides is as believed.

        Args:
            nodes: Mask of its nodes.
            nbytes: Bytes that cross its boundary.
            optimism: By how many standard deviations.
        """
        return self.hoped_together_us([(nodes, nbytes)], optimism)

    def hoped_together_us(self, kernels: Sequence[tuple[int, float]], optimism: float) -> float:
        """Return what disjoint kernels together take, if all of their nodes are faster than believed.

        That is less hope than for each of them by itself: where the sum is known, what one gains another loses.

        Args:
            kernels: Mask of the nodes, and bytes that cross the boundary, of each.
            optimism: By how many standard deviations of the sum.
        """
        features = [self._features(nodes, nbytes) for nodes, nbytes in kernels]
        mean = sum(float(by @ self._now.mean[at]) for at, by in features)
        nodes = np.concatenate([at[at < self._nodes] for at, _ in features])
        _, variance = self._now.moments(nodes, np.ones(len(nodes)))
        return max(0.0, mean - optimism * math.sqrt(variance))

    def learning(self, measurements: Iterable[tuple[int, float, float]]) -> TargetBelief:
        """Return the belief after measurements.

        Args:
            measurements: Of each, the mask of the kernel's nodes, the bytes that cross its boundary, and what it took
                in microseconds.
        """
        after = copy.copy(self)
        after._measurements = (*self._measurements, *measurements)
        for scale in _SCALES:
            now, surprise = self._first.doubted(scale), 0.0
            for nodes, nbytes, cost_us in after._measurements:
                now, squared = now.learning(*self._features(nodes, nbytes), cost_us)
                surprise += squared
            if surprise <= _SURPRISE * len(after._measurements):
                break
        after._now = now
        return after


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Normal:
    """A normal distribution over the times of nodes, of a kernel besides, and of a byte.

    Its covariance is `diag(own) + shared.T @ shared - seen.T @ seen`.
    """

    mean: _Vector
    own: _Vector
    shared: _Vector
    seen: _Vector

    def doubted(self, scale: float) -> _Normal:
        """Return the same with standard deviations multiplied by a scale, before anything is seen."""
        return dataclasses.replace(self, own=self.own * scale**2, shared=self.shared * scale)

    def moments(self, at: _Positions, by: _Vector) -> tuple[float, float]:
        """Return mean and variance of a weighted sum."""
        variance = float(by**2 @ self.own[at])
        variance += float(np.square(self.shared[:, at] @ by).sum()) - float(np.square(self.seen[:, at] @ by).sum())
        return float(by @ self.mean[at]), max(variance, 0.0)

    def learning(self, at: _Positions, by: _Vector, cost_us: float) -> tuple[_Normal, float]:
        """Return the distribution after a weighted sum was measured, and the square of how far off it was.

        The latter is in standard deviations: 1 on average if the distribution is right.
        """
        covariance = np.zeros_like(self.mean)
        covariance[at] = self.own[at] * by
        covariance += (self.shared[:, at] @ by) @ self.shared
        covariance -= (self.seen[:, at] @ by) @ self.seen
        spread = float(by @ covariance[at]) + (_NOISE * cost_us) ** 2 + _NOISE_US**2
        off = cost_us - float(by @ self.mean[at])
        after = dataclasses.replace(
            self,
            mean=self.mean + covariance * (off / spread),
            seen=np.vstack([self.seen, covariance / math.sqrt(spread)]),
        )
        return after, off**2 / spread


class Beliefs:
    """Estimates of unmeasured candidates from what is believed of each target.

    Args:
        targets: What is believed of each target, by name.
        boundary_bytes: Returns the bytes that cross the boundary of a mask of nodes.
        optimism: Standard deviations by which the nodes of an unmeasured kernel are hoped to be faster than believed.

    Examples:
        >>> belief = TargetBelief([100.0, 100.0], ["conv", "conv"], [GUESSED, GUESSED])
        >>> beliefs = Beliefs({"a": belief}, lambda nodes: 0.0)
        >>> beliefs = beliefs.learning([("a", 0b01, 50.0)])
        >>> 50 < beliefs.mean_us("a", 0b10) < 70  # of the same kind, so probably as fast
        True
    """

    def __init__(
        self,
        targets: Mapping[str, TargetBelief],
        boundary_bytes: Callable[[int], float],
        *,
        optimism: float = 1.25,
    ) -> None:
        self._targets = dict(targets)
        self._boundary_bytes = boundary_bytes
        self._optimism = optimism
        self._hoped: dict[tuple[str, int], float] = {}

    def learning(self, measurements: Iterable[tuple[str, int, float]]) -> Beliefs:
        """Return the beliefs after measurements, each a target, a mask of nodes and microseconds."""
        by_target: dict[str, list[tuple[int, float, float]]] = {}
        for target, nodes, cost_us in measurements:
            by_target.setdefault(target, []).append((nodes, self._boundary_bytes(nodes), cost_us))
        learnt = {target: self._targets[target].learning(each) for target, each in by_target.items()}
        targets = {**self._targets, **learnt}
        return Beliefs(targets, self._boundary_bytes, optimism=self._optimism)

    def node_us(self, target: str, node: int) -> float:
        """Return the believed time of a node inside a kernel of a target, in microseconds."""
        return self._targets[target].node_us(node)

    def change_us(self, target: str, one: int, other: int) -> float:
        """Return what is believed to change because two neighbours are in one kernel of a target; microseconds."""
        return self._targets[target].change_us(one, other)

    def mean_us(self, target: str, nodes: int) -> float:
        """Return the believed time of a kernel, in microseconds."""
        return max(0.0, self._targets[target].moments(nodes, self._boundary_bytes(nodes))[0])

    def expected_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`."""
        key = candidate.target, candidate.nodes
        if key not in self._hoped:
            belief, nbytes = self._targets[candidate.target], self._boundary_bytes(candidate.nodes)
            self._hoped[key] = belief.hoped_us(candidate.nodes, nbytes, self._optimism)
        return self._hoped[key]

    def hoped_together_us(self, candidates: Iterable[SearchCandidate]) -> float:
        """Return what the kernels of a plan are hoped to take together, in microseconds; see `TargetBelief`."""
        by_target: dict[str, list[tuple[int, float]]] = {}
        for each in candidates:
            by_target.setdefault(each.target, []).append((each.nodes, self._boundary_bytes(each.nodes)))
        return sum(
            self._targets[target].hoped_together_us(kernels, self._optimism) for target, kernels in by_target.items()
        )

    def at_least_us(self, candidate: SearchCandidate) -> float:
        """See `Estimates`; what is believed proves nothing."""
        return 0.0
