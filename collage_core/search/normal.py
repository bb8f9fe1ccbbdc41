"""A normal distribution over unknowns that is learnt from weighted sums of them, and draws from one with longer tails.

The update after each measurement is Kalman's (C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine
Learning", section 2.1). Draws follow it by Matheron's rule: each is moved by what the measurement, with noise drawn for
it, differs from what the draw said of it, so that afterwards it is a draw from the distribution that was learnt (J. T.
Wilson and others, "Pathwise Conditioning of Gaussian Processes", JMLR 22, 2021).

A few unknowns are further from their mean than a normal distribution allows. So each draw's distance from the mean is
multiplied by a factor of its own, which makes it a draw of a multivariate Student's t distribution.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any, Final, Self, TypeAlias

import numpy as np

Vector: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Matrix: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"
Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.intp]]"

_FREEDOM: Final = 4
"""Degrees of freedom of Student's t distribution: the fewer, the longer its tails."""
_LEAST_ROOT: Final = 0.1
"""Least cube root of a chi-squared number over its mean. Of smaller ones, fewer than one in 5,000, the approximation by
Wilson and Hilferty makes negative numbers.
"""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How well a distribution foresaw measurements.

    Attributes:
        squares: Sum of the squares of how far off they were, in standard deviations: on average as many as there are
            measurements if the distribution is right.
        log_density: Logarithm of their joint probability density, which says which of several distributions fits best.
    """

    squares: float = 0.0
    log_density: float = 0.0

    def __add__(self, other: Fit) -> Fit:
        """Return the fit to the measurements of both; the second learnt from those of the first."""
        return Fit(squares=self.squares + other.squares, log_density=self.log_density + other.log_density)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Normal:
    """A normal distribution; its covariance is `diag(own) + shared.T @ shared - seen.T @ seen`.

    Attributes:
        mean: Of each unknown.
        own: Variance of each unknown that others have no part in.
        shared: A row for each factor that unknowns share: how far one standard deviation of it moves each.
        seen: A row for each measurement: by how much it lowered the covariance.
        draws: A row for each draw.
        seed: Of the draws.
    """

    mean: Vector
    own: Vector
    shared: Matrix
    seen: Matrix
    draws: Matrix
    seed: int

    @classmethod
    def first(cls, mean: Vector, own: Vector, shared: Matrix, *, draws: int, seed: int) -> Self:
        """Return a distribution of which nothing was seen.

        Args:
            mean: As in the class.
            own: As in the class.
            shared: As in the class.
            draws: How many to draw; the same for the same seed.
            seed: Of the draws.
        """
        rng = np.random.default_rng(seed)
        off = (
            rng.standard_normal((draws, len(mean))) * np.sqrt(own) + rng.standard_normal((draws, len(shared))) @ shared
        )
        further = mean + off * _spreads(draws)[:, None]
        return cls(mean=mean, own=own, shared=shared, seen=np.zeros((0, len(mean))), draws=further, seed=seed)

    def doubted(self, scale: float) -> Self:
        """Return the same with standard deviations multiplied by a scale, before anything is seen."""
        draws = self.mean + scale * (self.draws - self.mean)
        return dataclasses.replace(self, own=self.own * scale**2, shared=self.shared * scale, draws=draws)

    def moments(self, at: Positions, by: Vector) -> tuple[float, float]:
        """Return mean and variance of a weighted sum.

        Args:
            at: Positions of its unknowns.
            by: Their weights.
        """
        variance = float(by**2 @ self.own[at])
        variance += float(np.square(self.shared[:, at] @ by).sum()) - float(np.square(self.seen[:, at] @ by).sum())
        return float(by @ self.mean[at]), max(variance, 0.0)

    def learning(self, at: Positions, by: Vector, value: float, noise: float) -> tuple[Self, Fit]:
        """Return the distribution after a weighted sum was measured, and how well it had foreseen that.

        Args:
            at: Positions of its unknowns.
            by: Their weights.
            value: What was measured.
            noise: Its standard deviation.
        """
        covariance = np.zeros_like(self.mean)
        covariance[at] = self.own[at] * by
        covariance += (self.shared[:, at] @ by) @ self.shared
        covariance -= (self.seen[:, at] @ by) @ self.seen
        spread = float(by @ covariance[at]) + noise**2
        off = value - float(by @ self.mean[at])
        disturbed = value + noise * np.random.default_rng((self.seed, len(self.seen))).standard_normal(len(self.draws))
        after = dataclasses.replace(
            self,
            mean=self.mean + covariance * (off / spread),
            seen=np.vstack([self.seen, covariance / math.sqrt(spread)]),
            draws=self.draws + np.outer((disturbed - self.draws[:, at] @ by) / spread, covariance),
        )
        return after, Fit(squares=off**2 / spread, log_density=-(math.log(2 * math.pi * spread) + off**2 / spread) / 2)


def _spreads(draws: int) -> Vector:
    """Return the factors that turn normal draws into draws of Student's t distribution, largest first.

    Each is the root of the degrees of freedom over a chi-squared number. The numbers are quantiles at equal steps of
    probability (by the approximation of Wilson and Hilferty), not drawn, so that a few dozen factors have the right
    spread.
    """
    normal = statistics.NormalDist()
    at = np.array([normal.inv_cdf((number + 0.5) / draws) for number in range(draws)])
    roots = 1 - 2 / (9 * _FREEDOM) + at * math.sqrt(2 / (9 * _FREEDOM))
    return np.maximum(roots, _LEAST_ROOT) ** -1.5
