"""What a group of operators is for a kernel: a problem, what follows the product, and which values are its operands."""

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
"""Elements of an extent, and of an image: CUTLASS 2.x counts both in `int`."""

MOST_SIDE_BY_SIDE = 65535
"""Blocks along the second and third axis of a grid (CUDA C++ programming guide, "Compute Capabilities")."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """A group as a call of a kernel.

    Attributes:
        problem: Extents.
        numbers: How it is multiplied.
        chain: What follows.
        operands: Values by the operand they are: of a product `a` and `b`, of a convolution `x` and `filter`; `bias`
            and `source` where there are such.
        turned: Whether a product's second factor is a weight that the model has the other way round.
    """

    problem: Problem
    numbers: Numbers
    chain: Chain
    operands: Mapping[str, onnx_ir.Value]
    turned: bool = False

    def for_wgmma(self) -> Described:
        """The same with both factors along what is summed over, where they are of four bytes and one is a weight.

        Where `wgmma` takes them only so (`menu.tiles_of`), a weight is worth being turned, once, when it is loaded.
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
    """What products and convolutions have in common.

    Attributes:
        specs: Of factors and all that is added or multiplied afterwards, by name in the pattern.
        result: Of the product itself.
        numbers: How it is multiplied.
        chain: What follows.
    """

    specs: Mapping[str, TensorSpec]
    result: TensorSpec
    numbers: Numbers
    chain: Chain


def parts_of(
    match: Match, factors: tuple[str, str], anchor: str, *, activation: str, source: Source, precision: str
) -> Parts | Unsupported:
    """Reads what products and convolutions have in common, or says why it is nothing for CUTLASS.

    Args:
        match: Of one of `patterns.FORMS`.
        factors: Names of the factors in the pattern.
        anchor: Name of the product in the pattern.
        activation: A name of `ACTIVATIONS`.
        source: The form's; a residual that may be there makes it `BEFORE`.
        precision: The target's.
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
    """Values by operand.

    Args:
        match: The match.
        factors: Operands, by name in the pattern.
    """
    names = {**factors, "bias": "bias", "residual": "source", "scale": "source"}
    return {operand: match.captures[name] for name, operand in names.items() if name in match.captures}


def along_one_axis(shape: Sequence[int], result: Sequence[int], axis: int) -> bool:
    """Whether a value has an element for each place of one axis of a result, and is repeated along all others.

    Examples:
        >>> along_one_axis((8, 1, 1), (2, 8, 5, 5), 1), along_one_axis((5,), (2, 8, 5, 5), 1)
        (True, False)
    """
    padded = (1,) * (len(result) - len(shape)) + tuple(shape)
    return padded == tuple(extent if place == axis else 1 for place, extent in enumerate(result))


def misaligned(numbers: Numbers, extents: Mapping[str, int]) -> str:
    """Which extent is no multiple of what is read at once; empty if all are.

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
