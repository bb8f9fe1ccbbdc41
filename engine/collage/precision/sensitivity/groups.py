"""The products of a model in groups, whose precision is decided together."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Final

from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.flops import node_flops
from collage_core.ir.graph.masks import mask_of
from collage_core.ir.operators.quantised import is_dequantize
from collage_core.ir.operators.quantising import Int8Product, QuantisableProduct, Range, quantisable

MOST_GROUPS: Final = 56
"""Groups at most. Each is probed once in each of two types, so that all of them, and some of their sums, take less than
120 runs of the model.
"""


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
    count = min(len(products), MOST_GROUPS)
    ends = [round(number * len(products) / max(count, 1)) for number in range(count + 1)]
    return tuple(
        ProductGroup(
            products=tuple(products[first:end]),
            flops=max(1.0, sum(node_flops(graph, each.node) or 0.0 for each in products[first:end])),
        )
        for first, end in itertools.pairwise(ends)
    )


def flops_of(groups: Sequence[ProductGroup], chosen: int) -> float:
    """Return the operations of the groups in a mask of their numbers."""
    return sum(group.flops for number, group in enumerate(groups) if chosen >> number & 1)
