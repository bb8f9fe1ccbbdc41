"""Believe what errors plans have, and learn from plans that were run.

Errors of a plan's kernels may add up, add in squares, cancel or amplify each other, and first guesses of them may be
wrong. The belief is one of the logarithm of a plan's error:

    log error(plan) = log(sum over kernels of (guess * factor) ** power) / power + what the plan as a whole is off by

The logarithms of factors (a kernel's own, its target's and one of all) and of the power are normal, and so is what
plans are off by. That stands for effects of one kernel on another, so what two plans are off by correlates as far as
they share pairs of kernels.

Draws are conditioned on the runs by randomised maximum likelihood: each is moved from where it was drawn to where it
explains the runs, by Gauss-Newton steps (Y. Chen and D. S. Oliver, "Ensemble Randomized Maximum Likelihood Method as an
Iterative Ensemble Smoother", Mathematical Geosciences 44, 2012). For what is linear in normal unknowns these are draws
of the posterior, as in `Normal`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from collage_core.search.normal import Matrix, Vector

DRAWS: Final = 64
_OWN, _TARGET, _ALL = 0.7, 0.7, 0.5
"""Standard deviations of the logarithms of factors by which guesses are off: a kernel's, a target's, one of all."""
POWER: Final = 2.0
"""First belief of the power: errors of independent sign add in squares."""
_POWER_DOUBT = 0.4
"""Standard deviation of its logarithm."""
_POWERS = (0.7, 8.0)
"""Least and largest power: of the latter, the sum is nearly the maximum."""
_PLAN = 0.35
"""Standard deviation of the logarithm of what a plan is off by. On random problems where errors of kernels multiply
each other, 0.25 missed the optimum by more than 3 % in 12 % of them and 0.35 in 7 %; more takes more runs.
"""
_NOISE = 0.02
"""The same of what one run is off by."""
_STEPS = 6
_MOST_LOG = 300.0
"""Largest logarithm of a drawn error's power, and the negative of the least."""
_SEEN = (1e-3, 1e3)
"""Errors, as multiples of the bound, that are learnt from at most: 0 and what is infinite have no logarithm."""
_LOGISTIC = 1.702
"""Slope at which the logistic function is within 0.01 of the normal distribution function."""


class ErrorBelief:
    """Draws of what errors are, as multiples of a bound, that agree with the plans that were run.

    Args:
        guesses: First guess of each candidate's error; one of 0 is certain.
        targets: Name of each candidate's target.
        seed: Of the draws.
    """

    def __init__(self, guesses: Vector, targets: Sequence[str], *, seed: int) -> None:
        names = sorted(set(targets))
        self._positive = guesses > 0
        self._log_guesses = np.log(guesses, out=np.zeros_like(guesses), where=self._positive)
        self._of_target = np.array([[name == target for name in names] for target in targets], dtype=np.float64)
        self._rng = np.random.default_rng(seed)
        # Columns: a candidate's own factor each, a target's each, the one of all, the power.
        self._first = self._rng.standard_normal((DRAWS, len(guesses) + len(names) + 2))
        self._now = self._first
        self._plans = np.zeros((0, len(guesses)))  # a row for each run: 1 for its candidates
        self._logs = np.zeros(0)
        self._offs = np.zeros((DRAWS, 0))  # what each plan that was run is off by, in each draw
        self._disturbances = np.zeros((DRAWS, 0))
        self._together = np.zeros((0, 0))  # covariance of what the plans that were run are off by

    def learn(self, plan: Vector, error: float) -> None:
        """Update the draws with the error of a plan.

        Args:
            plan: For each candidate, 1 if it is in the plan, else 0.
            error: As a multiple of the bound; NaN counts as infinite.
        """
        if not (plan * self._positive).any():
            return
        self._plans = np.vstack([self._plans, plan])
        seen = _SEEN[1] if math.isnan(error) else min(max(error, _SEEN[0]), _SEEN[1])
        self._logs = np.append(self._logs, math.log(seen))
        self._disturbances = np.column_stack([self._disturbances, self._rng.standard_normal(DRAWS)])
        self._together = self._alike(self._plans, self._plans) + _NOISE**2 * np.eye(len(self._logs))
        self._condition()

    def powers(self) -> tuple[Matrix, Vector]:
        """Return each draw's errors of the candidates to its power, and the powers."""
        logs, power = self._logs_and_power()
        return np.exp(np.clip(power[:, None] * logs, -_MOST_LOG, _MOST_LOG)) * self._positive, power

    def allowances(self, draws: Sequence[int]) -> Vector:
        """Draw by what factor the sum of some draws may exceed the bound: plans may be off as the last one was."""
        drawn = self._rng.standard_normal(len(draws)) * _PLAN
        if self._logs.size:
            drawn = self._offs[draws, -1] + drawn / 2
        return np.exp(-drawn)

    def chances(self, plans: Matrix) -> Vector:
        """Return with what probability plans keep to the bound.

        Args:
            plans: A row for each; as in `learn`.
        """
        powers, power = self.powers()
        logs = np.log(np.maximum(plans @ powers.T, math.exp(-_MOST_LOG))) / power
        shared = self._alike(plans, self._plans)
        weights = np.linalg.solve(self._together, shared.T).T
        variance = np.maximum(_PLAN**2 - (weights * shared).sum(axis=1), 0.0) + _NOISE**2
        off = (logs + weights @ self._offs.T) / np.sqrt(variance)[:, None]
        within: Matrix = 1 / (1 + np.exp(np.clip(_LOGISTIC * off, -_MOST_LOG, _MOST_LOG)))
        chances: Vector = within.mean(axis=1)
        return chances

    def _logs_and_power(self) -> tuple[Matrix, Vector]:
        count, now = len(self._log_guesses), self._now
        factors = _OWN * now[:, :count] + _TARGET * now[:, count:-2] @ self._of_target.T + _ALL * now[:, -2:-1]
        return self._log_guesses + factors, np.clip(POWER * np.exp(_POWER_DOUBT * now[:, -1]), *_POWERS)

    def _alike(self, some: Matrix, others: Matrix) -> Matrix:
        """Return the covariance of what plans are off by, from the share of pairs of kernels that both have."""
        sizes = some.sum(axis=1)[:, None] * others.sum(axis=1)
        alike: Matrix = _PLAN**2 * (some @ others.T) ** 2 / sizes
        return alike

    def _condition(self) -> None:
        """Move every draw from where it was drawn to where it explains the runs."""
        wanted = self._logs + self._disturbances @ np.linalg.cholesky(self._together).T
        for step in range(_STEPS):
            seen, slopes = self._seen()
            spread = slopes @ slopes.transpose(0, 2, 1) + self._together
            unexplained = wanted - seen + np.einsum("dri,di->dr", slopes, self._now - self._first)
            gains = np.linalg.solve(spread, unexplained[:, :, None])[:, :, 0]
            moved = self._first + np.einsum("dri,dr->di", slopes, gains)
            self._now = self._now + (moved - self._now) * (1.0 if step < _STEPS // 2 else 0.5)
        self._offs = self._logs - self._seen()[0]

    def _seen(self) -> tuple[Matrix, Matrix]:
        """Return what each draw says of each run, and how far each unknown moves that."""
        logs, power = self._logs_and_power()
        powers, _ = self.powers()
        sums = powers @ self._plans.T
        seen = np.log(sums) / power[:, None]
        weights = powers[:, None, :] * self._plans / sums[:, :, None]
        of_all = np.full(seen.shape, _ALL)
        of_power = _POWER_DOUBT * ((weights * logs[:, None, :]).sum(axis=2) - seen)
        own, of_targets = _OWN * weights, _TARGET * weights @ self._of_target
        return seen, np.concatenate([own, of_targets, of_all[:, :, None], of_power[:, :, None]], axis=2)
