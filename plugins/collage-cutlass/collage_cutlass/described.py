"""A group of operators described for a kernel: the problem, the epilogue, and the operands' values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import onnx_ir

from collage_core.contract import TensorSpec, Unsupported
from collage_core.ir.values.content import constant_of
from collage_core.patterns import Match
from collage_cutlass.activations import ACTIVATIONS
from collage_cutlass.numbers import Numbers, numbers_for
from collage_cutlass.problem import Chain, Gemm, Matrices, Problem, Source

MOST = 2**31 - 1
"""Largest extent, and largest number of elements of an image: CUTLASS 2.x counts both in `int`."""

MOST_SIDE_BY_SIDE = 65535
"""Most blocks along the second and third axis of a grid (CUDA C++ programming guide, "Compute Capabilities")."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A group as a call of a kernel.

    Attributes:
        problem: Extents and memory layout.
        numbers: Types, and how they are multiplied.
        chain: Epilogue of the product.
        operands: Values by operand: `a` and `b` of a product, `x` and `filter` of a convolution; `bias` and `source`
            where they exist.
        turned: Whether a product's second factor is a weight that has to be transposed when loaded.
    """

    problem: Problem
    numbers: Numbers
    chain: Chain
    operands: Mapping[str, onnx_ir.Value]
    turned: bool = False

    def for_wgmma(self) -> Described:
        """Return the description with both factors contiguous along k, if they have 4 bytes and one is a weight.

        Where `wgmma` supports only that layout (`menu.tiles_of`), transposing a weight once, when it is loaded,
        pays off.
        """
        problem, numbers = self.problem, self.numbers
        if not isinstance(problem, Gemm) or not numbers.by_tensor_cores or numbers.itemsize != 4:
            return self
        if problem.b.by_columns or constant_of(self.operands["b"]) is None:
            return self
        b = Matrices(problem.k, problem.b.stride, by_columns=True)
        return dataclasses.replace(self, problem=dataclasses.replace(problem, b=b), turned=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Description shared by products and convolutions.

    Attributes:
        specs: Factors and all epilogue operands, by name in the pattern.
        result: The product itself.
        numbers: Types, and how they are multiplied.
        chain: Epilogue of the product.
    """

    specs: Mapping[str, TensorSpec]
    result: TensorSpec
    numbers: Numbers
    chain: Chain


def parts_of(
    match: Match, factors: tuple[str, str], anchor: str, *, activation: str, source: Source, precision: str
) -> Parts | Unsupported:
    """Read the common parts of products and convolutions, or return why CUTLASS cannot compute the match.

    Args:
        match: Match of one of `patterns.FORMS`.
        factors: Names of the factors in the pattern.
        anchor: Name of the product in the pattern.
        activation: A name of `ACTIVATIONS`.
        source: The form's use of the source tensor; an optional residual that is present makes it `BEFORE`.
        precision: The target's precision.
    """
    if len(match.exits) > 1:
        return Unsupported(f"{', '.join(match.exits)} are read outside, and a kernel writes one result")
    result = match.node(anchor).outputs[0]
    names = (*factors, "bias", "residual", "scale")
    specs = {name: match.spec(name) for name in names if name in match.captures}
    whole = match.graph.spec(match.value)
    numbers = numbers_for({**specs, "result": result, "whole": whole}, precision)
    if isinstance(numbers, Unsupported):
        return numbers
    shape = result.static_shape
    if whole.static_shape != shape:
        return Unsupported(f"what follows {list(shape)} makes it {list(whole.static_shape)}")
    if "residual" in specs and specs["residual"].static_shape != shape:
        return Unsupported(f"what is added has the shape {list(specs['residual'].static_shape)}, not {list(shape)}")
    if source is Source.NONE and "residual" in specs:
        source = Source.BEFORE
    form = ACTIVATIONS[activation]
    chain = Chain(form.functor, source, *form.numbers(match))
    return Parts(specs=specs, result=result, numbers=numbers, chain=chain)


def operands_of(match: Match, factors: Mapping[str, str]) -> dict[str, onnx_ir.Value]:
    """Return the match's values by operand.

    Args:
        match: The match.
        factors: Operands, by name in the pattern.
    """
    names = {**factors, "bias": "bias", "residual": "source", "scale": "source"}
    return {operand: match.captures[name] for name, operand in names.items() if name in match.captures}


def along_one_axis(shape: Sequence[int], result: Sequence[int], axis: int) -> bool:
    """Return whether a value varies along one axis of a result only and is broadcast along all others.

    Examples:
        >>> along_one_axis((8, 1, 1), (2, 8, 5, 5), 1), along_one_axis((5,), (2, 8, 5, 5), 1)
        (True, False)
    """
    padded = (1,) * (len(result) - len(shape)) + tuple(shape)
    return padded == tuple(extent if place == axis else 1 for place, extent in enumerate(result))


def misaligned(numbers: Numbers, extents: Mapping[str, int]) -> str:
    """Return which extent is not a multiple of the vector access width; empty if all are.

    Examples:
        >>> from collage_cutlass.numbers import HALF
        >>> misaligned(HALF, {"k": 30, "n": 64})
        'k=30 is not a multiple of 8, and elements are read and written 8 at once'
    """
    at_once = numbers.access
    for name, extent in extents.items():
        if extent % at_once:
            return (
                f"{name}={extent} is not a multiple of {at_once}, and elements are read and written {at_once} at once"
            )
    return ""
