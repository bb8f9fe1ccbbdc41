"""Sizes near the typical ones, for runs whose sizes change."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from collage_core.ir.values.size_range import SizeRange

_NEAR: Final = 1 / 8
"""Largest relative difference from the typical size, so that the median time stays close to its time."""
_FEWEST: Final = 3
"""Minimum number of sizes."""


def sizes_in_turn(ranges: Mapping[str, SizeRange], most: int) -> list[dict[str, int]]:
    """Return sizes by symbol, the typical ones first and the nearest next; none where too few are near.

    All symbols differ from their typical size by the same number, because some sizes depend on each other, such as the
    length of a cache and that of its mask. A symbol whose typical size is small stays as it is. The number is a
    multiple of the largest power of two that divides the typical sizes and leaves enough sizes: a model that halves an
    image several times accepts no other sizes.

    Args:
        ranges: Sizes of each symbol.
        most: Maximum number of sizes.

    Examples:
        >>> sizes_in_turn({"side": SizeRange(320, 640, 480), "batch": SizeRange(1, 4, 2)}, 7)
        [{'side': 480, 'batch': 2}, {'side': 448, 'batch': 2}, {'side': 512, 'batch': 2}]
    """
    typical = {name: sizes.typical for name, sizes in ranges.items()}
    near = {name: each for name, sizes in ranges.items() if len(each := sizes.near(_NEAR)) > 1}
    if not near:
        return []
    least = max(each[0] - typical[name] for name, each in near.items())
    last = min(each[-1] - typical[name] for name, each in near.items())
    common = math.gcd(*(typical[name] for name in near))
    power = common & -common
    while (steps := _multiples(power, least, last)) and len(steps) < _FEWEST and power > 1:
        power //= 2
    steps = sorted(steps, key=lambda step: (abs(step), step))[:most]
    if len(steps) < _FEWEST:
        return []
    return [typical | {name: typical[name] + step for name in near} for step in steps]


def _multiples(number: int, least: int, last: int) -> list[int]:
    """Return the multiples of a number from `least` to `last`."""
    return list(range(-(-least // number) * number, last + 1, number))
