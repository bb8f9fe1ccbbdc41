"""The products of a model in groups, whose precision is decided together."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.flops import node_flops
from collage_core.ir.graph.masks import iterate_bits, mask_of
from collage_core.ir.operators.quantised import is_dequantize
from collage_core.ir.operators.quantising import Int8Product, QuantisableProduct, Range, quantisable

MOST_GROUPS: Final = 74
"""Groups at most, each of which is rounded to 8-bit integers by itself: a BERT of 12 layers has 73 products."""
MOST_ROUNDED: Final = 36
"""Runs of groups at most that are rounded to bfloat16 together.

With the run of the reference and those of 8 calibration samples, all is known after 119 runs of the model. Groups are
chosen for 8-bit integers one by one, but bfloat16 for all of a kernel, so its errors may be of several at a time.
"""
_FEW_ROWS: Final = 4
"""Rows up to which reading a weight is taken to be the time of a product.

With 8-bit weights, 1 row took 0.36 of the time in bfloat16, 2 rows 0.45, 4 rows 0.53, 8 rows 0.57, 32 rows 0.74 (EPYC
with AVX512_BF16, OpenVINO 2026.4.1, `benchmarks/few_rows.py`). The more rows, the further ahead are 8-bit operands.
"""
_LARGE_BYTES: Final = 1 << 20
"""Size of a weight from which it is worth it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ProductGroup:
    """Products that follow one another, and are computed in one precision.

    Attributes:
        products: The products, in the graph's order, each with the range of its activation.
        flops: Their floating-point operations, at least 1.
    """

    products: tuple[Int8Product, ...]
    flops: float

    @property
    def nodes(self) -> int:
        """Mask of the products."""
        return mask_of(product.node for product in self.products)


def products_of(graph: DataflowGraph) -> list[tuple[int, QuantisableProduct]]:
    """Return the products that can be quantised, by their index; none of a model that is quantised already.

    Args:
        graph: The prepared model's graph.
    """
    if any(is_dequantize(node) for node in graph.nodes):
        return []
    found = ((index, quantisable(node)) for index, node in enumerate(graph.nodes))
    return [(index, product) for index, product in found if product is not None]


def product_groups(graph: DataflowGraph, ranges: Mapping[int, Range]) -> tuple[ProductGroup, ...]:
    """Return the products in groups, each alone if there are few.

    Args:
        graph: The prepared model's graph.
        ranges: Ranges of the activations that products read, by the product's index.
    """
    products = [Int8Product(index, span) for index, span in sorted(ranges.items())]
    return tuple(
        ProductGroup(
            products=tuple(products[first:end]),
            flops=max(1.0, sum(node_flops(graph, each.node) or 0.0 for each in products[first:end])),
        )
        for first, end in _runs(len(products), MOST_GROUPS)
    )


def rounded_together(groups: Sequence[ProductGroup]) -> list[int]:
    """Return runs of groups that are rounded to bfloat16 together, as masks of their numbers."""
    return [mask_of(range(first, end)) for first, end in _runs(len(groups), MOST_ROUNDED)]


def bound_by_weights(graph: DataflowGraph, groups: Sequence[ProductGroup]) -> list[int]:
    """Return the groups whose time is that of reading their weights; none if these are less than half of all weights.

    Args:
        graph: The prepared model's graph.
        groups: All groups.
    """
    sizes = [sum(_weight_bytes(graph, each.node) for each in group.products) for group in groups]
    found = [
        number
        for number, group in enumerate(groups)
        if all(_is_bound_by_weight(graph, each.node) for each in group.products)
    ]
    return found if 2 * sum(sizes[number] for number in found) >= sum(sizes) else []


def _is_bound_by_weight(graph: DataflowGraph, index: int) -> bool:
    """Return whether a product multiplies few rows by a large matrix."""
    node = graph.nodes[index]
    shape = graph.spec(node.outputs[0]).shape
    if node.op_type == "Conv" or shape is None or _weight_bytes(graph, index) < _LARGE_BYTES:
        return False
    rows = [length for length in shape[:-1] if length is not None]
    return len(rows) == len(shape) - 1 and math.prod(rows) <= _FEW_ROWS


def _weight_bytes(graph: DataflowGraph, index: int) -> int:
    weight = graph.nodes[index].inputs[1]
    return 0 if weight is None else graph.spec(weight).nbytes


def shared_out(
    groups: Sequence[ProductGroup], together: Sequence[int], errors: Sequence[float], int8: Sequence[float]
) -> list[float]:
    """Return the error of each group in bfloat16, where that of some together is known.

    Shares of the square are in proportion to the errors of products in 8-bit integers: half way between equal ones and
    those of the squares of these. For a BERT the latter are right, for convolutional networks the former.

    Args:
        groups: All groups.
        together: Masks of their numbers; each group is in one.
        errors: Error of each mask.
        int8: Error of each group in 8-bit integers; zeros if that is not known.
    """
    found = [0.0] * len(groups)
    for mask, error in zip(together, errors, strict=True):
        inside = list(iterate_bits(mask))
        weights = {number: int8[number] * math.sqrt(len(groups[number].products)) for number in inside}
        if not 0 < sum(weights.values()) < math.inf:
            weights = {number: float(len(groups[number].products)) for number in inside}
        for number in inside:
            found[number] = error * math.sqrt(weights[number] / sum(weights.values()))
    return found


def _runs(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the end of at most some runs of about the same length, which make up all of a sequence."""
    parts = min(count, most)
    return itertools.pairwise(round(number * count / max(parts, 1)) for number in range(parts + 1))


def flops_of(groups: Sequence[ProductGroup], chosen: int) -> float:
    """Return the operations of the groups in a mask of their numbers."""
    return sum(group.flops for number, group in enumerate(groups) if chosen >> number & 1)
