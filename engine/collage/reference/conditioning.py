"""How far a correct computation of a tensor may be from its expected value, element by element.

Two correct kernels round differently: they sum in other orders, fuse multiplications with additions, and approximate
functions by other polynomials. Each of their steps is exact for operands that differ by some units of rounding (a
backward error, as in N. J. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd edition, 2002, chapter 3), so
what differs in the end is what such perturbations of all operands do to the result. That is measured: the reference
runs a second time with perturbed operands (see `perturbed`), and the differences are summarised here by the magnitude
of the elements. An element of a sum has the noise of the sum's terms however small it is itself, and a mask of -1e9
has its own, so neither says anything about elements of another magnitude.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final

import ml_dtypes
import numpy as np

_MARGIN: Final = 16.0
"""Multiple of the noise that is allowed in 32 bits and more.

Kernels of ONNX Runtime 1.32 and OpenVINO 2026.4 for ONNX's node tests and for each node of ResNet-50, BERT and a
segmenter are at most 14 times the noise off where they agree with the standard, half of them less than 0.3 times; those
that do not agree are at least 1,000 times off.
"""
_NARROW_MARGIN: Final = 4.0
"""The same in 16 bits, where rounding is coarser than what algorithms differ by."""
_OF_FACTORS: Final = 64.0
"""Units of rounding that each element's noise is at most of its own magnitude where nothing is summed."""
_NEARBY: Final = 6
"""Octaves above an element's own whose noise is its own, too: a small element of a sum is a cancellation."""
_FEWEST: Final = 32
"""Elements at least from which the noise of an octave is taken: those in octaves above, then those nearby below."""
_SENTINEL: Final = 10
"""Empty octaves between the numbers of a tensor and the larger ones that are sentinels, such as masks."""
_USUAL: Final = 0.999
"""Share of the magnitudes that are at most the tensor's scale."""
_USUAL_OCTAVES: Final = 3
"""Octaves from the median up to the largest number of a tensor that has no masks, about: those of normal numbers."""
_SAMPLE: Final = 1 << 20
"""Elements at most, about, that the scale of a tensor is taken from."""
_BLOCK: Final = 1 << 16
"""Elements at a time: half a megabyte of doubles, which fits in a second-level cache."""
_LOWEST: Final = -150
_OCTAVES: Final = 1024 - _LOWEST + 1
"""Number of octaves told apart; smaller magnitudes, and zeros, count as the lowest."""
_SINGLE: Final = 2.0**-24


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conditioning:
    """What rounding does to a tensor of floating-point numbers.

    Attributes:
        scale: 99.9th percentile of the magnitudes, without sentinels and what is not finite; 0.0 if nothing is left.
        sentinel: Least magnitude of the sentinels; None if there are none.
        unit: Unit of rounding of its type, or of the coarsest type among what it was computed from; that of float32
            for float64, which toolchains may compute in float32.
        octaves: Octaves of the magnitudes, ascending: the exponents e of numbers in [2**(e - 1), 2**e).
        noise: Largest difference that perturbations of the size of rounding cause, for elements in each octave.
        zero_noise: The same for elements that are zero.
        undecided: Share of the elements, of any type, that other roundings decide: choices between numbers that are
            as good as equal, and what follows from them.
    """

    scale: float = 0.0
    sentinel: float | None = None
    unit: float = _SINGLE
    octaves: tuple[int, ...] = ()
    noise: tuple[float, ...] = ()
    zero_noise: float = 0.0
    undecided: float = 0.0

    def tolerance(self, expected: Any) -> np.ndarray[Any, Any]:
        """Return how far each element may be off.

        Args:
            expected: Finite floating-point numbers, of any shape.

        Returns:
            float64, of the same shape.

        Examples:
            >>> Conditioning(octaves=(1,), noise=(1e-6,)).tolerance(np.float64([0.0, 1.0])).tolist()
            [0.0, 1.6e-05]
        """
        given = np.asarray(expected)
        flat, allowed = given.reshape(-1), np.empty(given.size)
        noise = self._noise_by_octave()
        for start in range(0, flat.size, _BLOCK):
            magnitudes = np.abs(flat[start : start + _BLOCK].astype(np.float64))
            found = noise[octave_of(magnitudes) - _LOWEST]
            found[magnitudes == 0] = self.zero_noise
            np.maximum(magnitudes * self.unit, found, out=allowed[start : start + _BLOCK])
        allowed *= self._margin
        shaped: np.ndarray[Any, Any] = allowed.reshape(given.shape)
        return shaped

    @property
    def _margin(self) -> float:
        return _MARGIN if self.unit == _SINGLE else _NARROW_MARGIN

    def _noise_by_octave(self) -> np.ndarray[Any, Any]:
        """Return the noise of every octave: where none was seen, that of the next larger, or in proportion."""
        if not self.octaves:
            return np.full(_OCTAVES, self.zero_noise)
        known, noise = np.asarray(self.octaves), np.asarray(self.noise)
        octaves = np.arange(_LOWEST, _LOWEST + _OCTAVES)
        above = np.maximum(octaves - known[-1], 0)
        seen = noise[np.minimum(np.searchsorted(known, octaves), len(known) - 1)]
        with np.errstate(over="ignore"):  # what is infinite is compared apart
            everywhere: np.ndarray[Any, Any] = np.ldexp(seen, above)
        return everywhere

    def with_noise(self, noise: float) -> Conditioning:
        """Return the same with at least this noise of all elements."""
        return dataclasses.replace(
            self, noise=tuple(max(each, noise) for each in self.noise), zero_noise=max(self.zero_noise, noise)
        )

    @property
    def least(self) -> float:
        """Lower bound of the tolerance of all elements that were seen."""
        return self._margin * min((self.zero_noise, *self.noise))

    @property
    def is_noise(self) -> bool:
        """Whether the tensor is within rounding of zero: `Sum(Softmax(x)) - 1`."""
        return self._margin * max((self.zero_noise, *self.noise)) >= self.scale


def conditioning_of(
    expected: np.ndarray[Any, Any],
    perturbed: np.ndarray[Any, Any] | None = None,
    *,
    ratio: float = 1.0,
    undecided: float = 0.0,
    unit: float | None = None,
) -> Conditioning:
    """Summarise what perturbations did to a tensor.

    Args:
        expected: Its elements, floating-point.
        perturbed: What they are with perturbed operands, of the same shape; None if that is not known.
        ratio: Rounding relative to the perturbations.
        undecided: See `Conditioning`.
        unit: See `Conditioning`; that of its own type if None.
    """
    unit = unit_of(expected.dtype) if unit is None else unit
    if expected.dtype.kind == "c":
        expected = np.abs(expected)
    flat = expected.reshape(-1)
    other = None if perturbed is None else perturbed.reshape(-1)
    counts, largest = np.zeros(_OCTAVES, np.int64), np.zeros(_OCTAVES)
    of_itself = 0.0
    for start in range(0, flat.size, _BLOCK):
        e = flat[start : start + _BLOCK].astype(np.float64)
        finite = np.isfinite(e)
        e = e if finite.all() else e[finite]
        octaves = octave_of(np.abs(e)) - _LOWEST
        octaves[e == 0] = 0
        counts += np.bincount(octaves, minlength=_OCTAVES)
        if other is not None:
            p = other[start : start + _BLOCK].astype(np.float64)
            p = p if finite.all() else p[finite]
            difference = np.abs(p - e)
            difference[~np.isfinite(difference)] = 0.0
            np.maximum.at(largest, octaves, difference)
            factors = np.divide(difference, np.abs(e), out=np.zeros_like(e), where=e != 0)
            of_itself = max(of_itself, float(factors.max(initial=0.0)))
    sentinel = _sentinel(counts)
    scale = _scale(flat, sentinel)
    of_factors = other is not None and not largest[0] and of_itself * ratio <= _OF_FACTORS * unit
    largest *= ratio
    found, noise = _pooled(counts, largest)
    zero_noise = max(largest[0], noise[np.searchsorted(found, _median_octave(counts))] if noise else 0.0)
    if of_factors:  # products, not sums: each element has the noise of its own magnitude
        noise = [
            min(each, of_itself * ratio * 2.0 ** (octave + _LOWEST)) for octave, each in zip(found, noise, strict=True)
        ]
        zero_noise = 0.0
    return Conditioning(
        scale=scale,
        sentinel=sentinel,
        unit=unit,
        octaves=tuple(int(octave) + _LOWEST for octave in found),
        noise=tuple(map(float, noise)),
        zero_noise=float(zero_noise),
        undecided=undecided,
    )


def assumed_conditioning(expected: np.ndarray[Any, Any]) -> Conditioning:
    """Return what rounding may do to a tensor of which nothing was measured: what it does to sums of its scale.

    Args:
        expected: Its elements, floating-point.
    """
    flat = expected.reshape(-1)
    sample = flat[:: flat.size // _SAMPLE | 1]
    found = conditioning_of(sample)
    magnitudes = np.abs(sample).astype(np.float64)
    usual = magnitudes[np.isfinite(magnitudes) & (magnitudes > 0)]
    if not usual.size:
        return found
    # masks may be too near to be told apart, and too many for a percentile
    largest = float(np.ldexp(1.0, octave_of(np.median(usual)) + _USUAL_OCTAVES))
    return found.with_noise(min(found.scale, largest) * found.unit)


def unit_of(dtype: np.dtype[Any]) -> float:
    """Return the unit of rounding that kernels of a floating-point type are held to.

    Examples:
        >>> unit_of(np.dtype(np.float16)) == 2.0**-11, unit_of(np.dtype(np.float64)) == 2.0**-24
        (True, True)
    """
    return max(float(ml_dtypes.finfo(dtype).eps) / 2, _SINGLE)


def octave_of(magnitudes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the octave of each magnitude: the exponent e of a number in [2**(e - 1), 2**e)."""
    octaves: np.ndarray[Any, Any] = np.maximum(np.frexp(magnitudes)[1], _LOWEST).astype(np.int64)
    return octaves


def _pooled(counts: np.ndarray[Any, Any], largest: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], list[float]]:
    """Return the populated octaves but that of zero, and the largest noise in each and in those next to it."""
    populated = np.flatnonzero(counts[1:]) + 1
    noise = []
    for octave in map(int, populated):
        until = min(octave + _NEARBY, _OCTAVES - 1)
        if counts[octave : until + 1].sum() < _FEWEST:
            enough = np.cumsum(counts[octave:]) >= _FEWEST
            until = octave + int(np.argmax(enough)) if enough.any() else _OCTAVES - 1
        since = octave
        if counts[octave : until + 1].sum() < _FEWEST:  # the noise of so few may be small by chance
            since = max(octave - _NEARBY, 1)
        noise.append(float(largest[since : until + 1].max()))
    return populated, noise


def _sentinel(counts: np.ndarray[Any, Any]) -> float | None:
    """Return the least magnitude above a wide gap, where most elements lie below it; None if there is none."""
    populated = np.flatnonzero(counts[1:]) + 1
    above = 0
    for lower, upper in zip(populated[-2::-1], populated[:0:-1], strict=True):
        above += int(counts[upper])
        if upper - lower > _SENTINEL:
            return math.ldexp(1.0, int(upper) + _LOWEST - 1) if 2 * above < int(counts[1:].sum()) else None
    return None


def _median_octave(counts: np.ndarray[Any, Any]) -> int:
    """Return the octave of the median of what is not zero."""
    cumulated = np.cumsum(counts[1:])
    return 1 + int(np.searchsorted(cumulated, cumulated[-1] / 2))


def _scale(flat: np.ndarray[Any, Any], sentinel: float | None) -> float:
    sample = flat[:: flat.size // _SAMPLE | 1]
    magnitudes = np.abs(sample if sample.dtype.kind == "f" else sample.astype(np.float32))
    usual = magnitudes[magnitudes < (math.inf if sentinel is None else sentinel)]  # not NaN either
    if not usual.size:
        return 0.0
    place = math.ceil(_USUAL * (usual.size - 1))
    return float(np.partition(usual, place)[place])
