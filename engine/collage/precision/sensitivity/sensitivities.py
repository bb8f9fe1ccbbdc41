"""What kernels of lower precision are expected to do to the model's outputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from collage.precision.sensitivity.groups import ProductGroup
from collage_core.contract import Target
from collage_core.fusion import CandidateKernel, FusionSpec, SubGraph, UnionRule
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.quantising import Int8Product

_RELATIVE_TO_BF16: Final[Mapping[str, float]] = {"bf16": 1.0, "fp16": 0.125, "tf32": 0.125}
"""Error of rounding to a type relative to bfloat16, whose significand has 8 bits; those of the others have 11."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sensitivities:
    """Errors of the model's outputs by what is rounded, each relative to the output's scale.

    Roundings of different products are independent, so their errors add up in squares (N. J. Higham, "Accuracy and
    Stability of Numerical Algorithms", 2nd edition, 2002, section 2.8).

    Attributes:
        groups: Products that are rounded together.
        int8: Error of each group in 8-bit integers.
        bf16: Error of each group in bfloat16.
        weights: Error of a group of which only the weights are in 8-bit integers, by its number; only groups whose
            products are `bound_by_weights`, if a target computes so.
        factors: By target, what its kernels' errors turned out to be relative to what these say.
    """

    groups: Sequence[ProductGroup]
    int8: Sequence[float]
    bf16: Sequence[float]
    weights: Mapping[int, float] = dataclasses.field(default_factory=dict)
    factors: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def square(self, candidate: CandidateKernel) -> float:
        """Return the square of the error that a kernel is expected to add; 0 if it computes in the model's types."""
        target, inside = candidate.target, candidate.sub_graph.nodes
        if target.exact:
            return 0.0
        eight = {product.node for product in candidate.sub_graph.int8}
        found = 0.0
        for number, group in enumerate(self.groups):
            for product in group.products:
                if inside >> product.node & 1:
                    is_in_int8 = product.node in eight
                    whole = self._quantised(number, target) if is_in_int8 else self._rounded(number, target)
                    found += whole / len(group.products)
        return found * self.factors.get(target.name, 1.0) ** 2

    def _quantised(self, number: int, target: Target) -> float:
        """Return the square of the error of a group that a target quantises."""
        return (self.weights[number] if target.quantises_only_weights else self.int8[number]) ** 2

    def _rounded(self, number: int, target: Target) -> float:
        """Return the square of the error of a group that a target does not quantise."""
        relative = _RELATIVE_TO_BF16.get(target.rounded_precision, 0.0)
        return (relative * self.bf16[number]) ** 2

    def learning(self, candidate: CandidateKernel, error: float) -> Sensitivities:
        """Return the sensitivities after a kernel for the whole model turned out to have an error.

        Args:
            candidate: The kernel.
            error: Largest error of an output.
        """
        expected, name = math.sqrt(self.square(candidate)), candidate.target.name
        if not (0 < expected < math.inf and 0 < error < math.inf):
            return self
        factor = self.factors.get(name, 1.0) * error / expected
        return dataclasses.replace(self, factors={**self.factors, name: factor})

    def by_price(self, target: Target) -> list[int]:
        """Return the groups in the order in which they are best quantised: by the error that each adds for its work.

        With a price on error, a group is quantised where what that saves exceeds the price of its error. So a plan for
        every price is a beginning of this list, if the time saved is in proportion to the operations.

        Args:
            target: Computes the groups; only those that it can quantise are returned.
        """
        found = list(self.weights) if target.quantises_only_weights else list(range(len(self.groups)))
        more = {number: self._quantised(number, target) - self._rounded(number, target) for number in found}
        return sorted(found, key=lambda number: more[number] / self.groups[number].flops)

    def quantised(self, graph: DataflowGraph, nodes: int, target: Target, chosen: Iterable[int]) -> CandidateKernel:
        """Return a kernel of which some groups are quantised.

        Args:
            graph: The prepared model's graph.
            nodes: Mask of the kernel's nodes.
            target: Runs it.
            chosen: Numbers of the groups; products outside the kernel are left out, and groups that the target cannot
                quantise.
        """
        if target.quantises_only_weights:
            chosen = [number for number in chosen if number in self.weights]
        products = [
            _in_form(product, target)
            for number in chosen
            for product in self.groups[number].products
            if nodes >> product.node & 1
        ]
        spec = FusionSpec(name=target.name, rule=UnionRule(()), targets=(target,))
        return CandidateKernel(SubGraph(graph, nodes, int8=tuple(sorted(products))), spec, target)


def _in_form(product: Int8Product, target: Target) -> Int8Product:
    """Return a product in the form that a target takes."""
    if product.span is None or target.quantises_only_weights:
        return Int8Product(product.node, None)
    return Int8Product(product.node, product.span.in_form(symmetric=target.symmetric))
