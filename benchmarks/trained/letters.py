"""Pictures of letters for the CNN: skewed, struck through, noisy.

Only operations that IEEE 754 defines exactly are used (no sine, no sum over an axis), so a seed gives the same pictures
on every processor.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

SIDE: Final = 24
"""Height and width of a picture in pixels."""

_STROKES: Final[dict[str, tuple[str, ...]]] = {
    "A": ("04 20", "20 44", "12 32"),
    "E": ("00 04", "00 40", "02 32", "04 44"),
    "F": ("00 04", "00 40", "02 32"),
    "H": ("00 04", "40 44", "02 42"),
    "I": ("20 24",),
    "K": ("00 04", "02 40", "02 44"),
    "L": ("00 04", "04 44"),
    "M": ("00 04", "00 22", "22 40", "40 44"),
    "N": ("00 04", "00 44", "40 44"),
    "T": ("00 40", "20 24"),
    "V": ("00 24", "24 40"),
    "W": ("00 14", "14 22", "22 34", "34 40"),
    "X": ("00 44", "04 40"),
    "Y": ("00 22", "40 22", "22 24"),
    "Z": ("00 40", "40 04", "04 44"),
}
"""Ends of the strokes of each letter: column and row on a grid of 5 x 5."""
LETTERS: Final = "".join(_STROKES)
"""The classes; a label is an index into them."""

_LEVELS: Final = 4
"""Number of grey levels; few, so that the pictures compress well."""
_SKEW: Final = 0.3
"""Largest deviation of an element of a letter's linear map from the identity's."""
_SHIFT: Final = 2.5
"""Largest shift of a letter in pixels, along each axis."""
_JITTER: Final = 0.6
"""Largest shift of a stroke's end in pixels, along each axis."""
_NOISE: Final = 0.36
"""Largest magnitude of each of the two uniform terms of a pixel's noise; ink is between 0.6 and 1."""


def letters(generator: np.random.Generator, count: int) -> dict[str, np.ndarray[Any, Any]]:
    """Draw pictures of random letters.

    Args:
        generator: Source of random numbers.
        count: Number of pictures.

    Returns:
        `pixels`, uint8 of shape [count, 1, SIDE, SIDE], and `label`, int64 of shape [count].
    """
    label = generator.integers(0, len(LETTERS), count)
    ends = _placed(_ENDS[label], generator)
    ends = np.concatenate([ends, _struck(generator, count)], axis=1)
    thickness = generator.uniform(1.4, 2.6, (count, 1, 1))
    cover = np.clip(0.5 + thickness / 2 - _distance(ends), 0, 1)
    noise = generator.uniform(-_NOISE, _NOISE, cover.shape) + generator.uniform(-_NOISE, _NOISE, cover.shape)
    ink = generator.uniform(0.6, 1, (count, 1, 1))
    levels = np.rint(np.clip(ink * cover + noise, 0, 1) * (_LEVELS - 1))
    return {"pixels": (levels * (255 // (_LEVELS - 1))).astype(np.uint8)[:, None], "label": label}


def _ends_of_letters() -> np.ndarray[Any, Any]:
    """Return the ends of all strokes, [letter, stroke, end, axis]; the last stroke is repeated where there are few."""
    most = max(map(len, _STROKES.values()))
    filled = [strokes + strokes[-1:] * (most - len(strokes)) for strokes in _STROKES.values()]
    return np.array([[[list(map(int, end)) for end in stroke.split()] for stroke in each] for each in filled]) / 2 - 1.0


_ENDS: Final = _ends_of_letters()
"""Ends of the strokes of each letter, [letter, stroke, end, axis], from -1 to 1."""


def _placed(ends: np.ndarray[Any, Any], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    """Map ends of strokes to pixels by a random affine map for each picture; move each end a little."""
    count = len(ends)
    size = generator.uniform(0.25 * SIDE, 0.38 * SIDE, (count, 1, 1))
    skew = generator.uniform(-_SKEW, _SKEW, (count, 2, 2, 1, 1))
    shift = generator.uniform(-_SHIFT, _SHIFT, (count, 2, 1, 1)) + SIDE / 2
    x, y = ends[..., 0], ends[..., 1]
    moved = [
        size * (x * (1 + skew[:, 0, 0]) + y * skew[:, 0, 1]) + shift[:, 0],
        size * (y * (1 + skew[:, 1, 1]) + x * skew[:, 1, 0]) + shift[:, 1],
    ]
    placed: np.ndarray[Any, Any] = np.stack(moved, axis=-1) + generator.uniform(-_JITTER, _JITTER, ends.shape)
    return placed


def _struck(generator: np.random.Generator, count: int) -> np.ndarray[Any, Any]:
    """Draw a stroke for each picture that belongs to no letter: 4 to 12 pixels along each axis."""
    start = generator.uniform(0, SIDE, (count, 1, 1, 2))
    way = generator.uniform(4, 12, start.shape) * generator.choice([-1.0, 1.0], start.shape)
    return np.concatenate([start, start + way], axis=2)


def _distance(ends: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the distance of each pixel's centre from the nearest stroke, [picture, row, column]."""
    centre = np.arange(SIDE) + 0.5
    nearest = np.full((len(ends), SIDE, SIDE), np.inf)
    for stroke in range(ends.shape[1]):
        (x, y), (to_x, to_y) = ends[:, stroke].transpose(1, 2, 0)[..., None, None]
        along_x, along_y = to_x - x, to_y - y
        from_x, from_y = centre - x, centre[:, None] - y
        length = along_x * along_x + along_y * along_y
        part = np.clip((from_x * along_x + from_y * along_y) / length, 0, 1)
        off_x, off_y = from_x - part * along_x, from_y - part * along_y
        nearest = np.minimum(nearest, off_x * off_x + off_y * off_y)
    found: np.ndarray[Any, Any] = np.sqrt(nearest)
    return found
