"""Split ranges of sizes into buckets: where the best plan differs, so does the plan that runs.

A plan for a range runs every size of it, so sizes can be given to plans after these are known. The model is optimized
for a few typical sizes, each time with kernels for the whole range. Neighbours with equal plans become one plan. Where
plans differ, the choice flips half-way between the two sizes that they were found for.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx_ir

from collage.prepare.shapes import free_inputs, range_symbols
from collage.report.facts.record import Record
from collage.setup.facts import opened
from collage_core.errors import FeedError, UsageError
from collage_core.ir.values.size_range import Shape, SizeRange, is_static

InputShapes: TypeAlias = Mapping[str, Shape]


def in_buckets(
    model: str | os.PathLike[str] | onnx_ir.Model,
    shapes: Sequence[InputShapes],
    buckets: int,
    sizes: Sequence[int] | None = None,
) -> tuple[InputShapes, ...]:
    """Return the sets of shapes with each that has a range as often as there are buckets, with other typical sizes.

    Args:
        model: An ONNX file, or a model in memory.
        shapes: The sets.
        buckets: How many typical sizes a range has, at least one.
        sizes: Sizes that were seen, from which typical ones follow; all sizes of a range are equally likely if None.

    Raises:
        UsageError: If there are several buckets and no range, a set in which several sizes vary, or a typical size that
            was given beside.
        ModelError: If the model cannot be used.
    """
    if buckets < 1:
        raise UsageError(f"{buckets} is no number of buckets: give one or more")
    if buckets == 1:
        return tuple(shapes)
    if all(is_static(shape) for each in shapes for shape in each.values()):
        raise UsageError("buckets split a range of sizes, and no range is given: write for example ids:[1,1..512]")
    given, _, _ = opened(model)
    found: list[InputShapes] = []
    for each in shapes:
        symbols = range_symbols(given, each)
        if not symbols:
            found.append(each)
            continue
        if len(symbols) > 1:
            names = ", ".join(f"{name} {sizes}" for name, sizes in symbols.items())
            raise UsageError(
                f"buckets split the range of one size, and {len(symbols)} vary: {names}; name ranges yourself, such as "
                "x:[1..8|9..64,...]"
            )
        [whole] = symbols.values()
        if sizes is None and whole != _without_typical(whole):
            raise UsageError(f"buckets choose typical sizes, and {whole} gives one: leave out @{whole.typical}")
        typical = _typical_sizes(whole, buckets, sizes)
        found += [_with_ranges(each, functools.partial(_measured_at, size)) for size in typical]
    return tuple(found)


def shapes_of_samples(
    model: str | os.PathLike[str] | onnx_ir.Model, samples: Sequence[Mapping[str, Any]]
) -> tuple[InputShapes, list[int]]:
    """Return the shapes of inputs over samples, with a range where sizes differ, and the sizes of the first range.

    Args:
        model: An ONNX file, or a model in memory.
        samples: Values of the inputs, by name.

    Raises:
        FeedError: If a sample lacks an input, or has one of another rank.
    """
    given, _, _ = opened(model)
    free = sorted(free_inputs(given))
    for name, sample in itertools.product(free, samples):
        if name not in sample:
            raise FeedError(name, "a sample has no value for this input")
    shapes: dict[str, Shape] = {}
    seen: list[int] = []
    for name in free:
        each = [tuple(np.shape(sample[name])) for sample in samples]
        if len({len(shape) for shape in each}) != 1:
            raise FeedError(name, "samples have values of several ranks for this input")
        extents: list[int | SizeRange] = []
        for column in zip(*each, strict=True):
            if len(set(column)) == 1:
                extents.append(column[0])
                continue
            extents.append(SizeRange(min(column), max(column), _where_work_is(sorted(column))))
            seen = seen or list(column)
        shapes[name] = tuple(extents)
    return shapes, seen


@dataclasses.dataclass(frozen=True, slots=True)
class Bucket:
    """Which of several optimizations serves which shapes.

    Attributes:
        number: The number of the optimization.
        shapes: The shapes that its plan is for.
    """

    number: int
    shapes: InputShapes


def merged(shapes: Sequence[InputShapes], plans: Sequence[Hashable]) -> list[Bucket]:
    """Return which plans are kept, and for which shapes: neighbours with equal plans are one bucket.

    Args:
        shapes: What each plan was found for, those of one range next to each other, in the order of typical sizes.
        plans: What of each plan tells it from others.
    """
    buckets: list[Bucket] = []
    for _, family in itertools.groupby(
        range(len(shapes)), key=lambda number: _with_ranges(shapes[number], _without_typical)
    ):
        runs = [list(run) for _, run in itertools.groupby(family, key=lambda number: plans[number])]
        sizes = [_typical(shapes[run[0]]) for run in runs], [_typical(shapes[run[-1]]) for run in runs]
        borders = [(before + after) // 2 for before, after in zip(sizes[1], sizes[0][1:], strict=False)]
        for run, least, most in zip(runs, [None, *(border + 1 for border in borders)], [*borders, None], strict=True):
            number = run[len(run) // 2]
            buckets.append(Bucket(number, _with_ranges(shapes[number], functools.partial(_narrowed, least, most))))
    return buckets


def plan_of_record(record: Record) -> Hashable:
    """Return what tells the plan of a record from others: which target computes which nodes."""
    return tuple((region.target, tuple(region.nodes)) for region in record.regions)


def _typical_sizes(whole: SizeRange, buckets: int, sizes: Sequence[int] | None) -> list[int]:
    """Return typical sizes: the middles of equal parts of a range, or of parts with equal work of what was seen."""
    count = min(buckets, whole.most - whole.least + 1)
    if sizes is None:
        step = (whole.most - whole.least + 1) / count
        return [whole.least + int((part + 0.5) * step) for part in range(count)]
    seen = sorted(size for size in sizes if size in whole)
    work = np.cumsum(seen)
    parts = np.searchsorted(work, [work[-1] * part / count for part in range(1, count)], side="right")
    return sorted({_where_work_is(part.tolist()) for part in np.split(np.array(seen), parts) if len(part)})


def _where_work_is(sizes: Sequence[int]) -> int:
    """Return the size below which half of the work is, if work is proportional to size; sizes in order."""
    work = np.cumsum(sizes)
    return int(sizes[int(np.searchsorted(work, work[-1] / 2))])


def _with_ranges(shapes: InputShapes, change: Callable[[SizeRange], SizeRange]) -> InputShapes:
    """Return shapes with each range changed."""
    return {
        name: tuple(change(extent) if isinstance(extent, SizeRange) else extent for extent in shape)
        for name, shape in shapes.items()
    }


def _typical(shapes: InputShapes) -> int:
    """Return the typical size of the first range; 0 without one."""
    ranges = (extent for shape in shapes.values() for extent in shape if isinstance(extent, SizeRange))
    return next((each.typical for each in ranges), 0)


def _measured_at(size: int, sizes: SizeRange) -> SizeRange:
    return SizeRange(sizes.least, sizes.most, size)


def _without_typical(sizes: SizeRange) -> SizeRange:
    return SizeRange.between(sizes.least, sizes.most)


def _narrowed(least: int | None, most: int | None, sizes: SizeRange) -> SizeRange:
    """Return the part of a range from `least` to `most`; from or to its own end where that is None."""
    ends = sizes.least if least is None else least, sizes.most if most is None else most
    return SizeRange(*ends, sizes.typical)
