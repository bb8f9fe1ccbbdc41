"""Describe convolutions over one or two axes, with their epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence

from collage_core.contract import Unsupported
from collage_core.patterns import Match, NodeContext
from collage_cutlass.described import (
    MOST,
    MOST_SIDE_BY_SIDE,
    Described,
    along_one_axis,
    misaligned,
    operands_of,
    parts_of,
)
from collage_cutlass.problem import Conv, Source

MOST_TURNED = 32 * MOST_SIDE_BY_SIDE
"""Largest number of pixels per image for `turn` in `conv_sm80.cu`: its blocks are 32 high."""


def describe_convolution(match: Match, *, activation: str, source: Source, precision: str) -> Described | Unsupported:
    """Describe a convolution as one call.

    Args:
        match: Match of one of the forms of `conv`.
        activation: A name of `ACTIVATIONS`.
        source: The form's use of the source tensor.
        precision: The target's precision.
    """
    factors = ("x", "weight")
    parts = parts_of(match, factors, "convolution", activation=activation, source=source, precision=precision)
    if isinstance(parts, Unsupported):
        return parts
    node = match.node("convolution")
    shape = parts.result.static_shape
    x, weight = (parts.specs[name].static_shape for name in factors)
    if not 3 <= len(shape) <= 4:
        return Unsupported(f"it is a convolution over {len(shape) - 2} axes; over 1 and 2 there are")
    if (groups := int(node.attribute("group", 1))) != 1:
        return Unsupported(f"it has {groups} groups; the fused kernels have one")
    for name in ("bias", "scale"):
        if name in parts.specs and not _along_channels(match, node, name, shape):
            return Unsupported(f"the {name} is not one number for each of the {shape[1]} channels")
    strides, dilations, pads = _window(node, x, weight, shape)
    if min(pads) < 0:
        return Unsupported(f"its pads {pads} are negative")
    one: tuple[int, ...] = (1,) if len(shape) == 3 else ()
    n, c, h, w = (*x[:2], *one, *x[2:])
    k, _, r, s = (*weight[:2], *one, *weight[2:])
    p, q = (*one, *shape[2:])
    if reason := misaligned(parts.numbers, {"c": c, "k": k}):
        return Unsupported(reason)
    if max(math.prod(each) for each in (x, weight, shape)) > MOST:
        return Unsupported(f"an image or a filter has more than {MOST} elements")
    if max(n, k) > MOST_SIDE_BY_SIDE or max(h * w, p * q) > MOST_TURNED:
        return Unsupported(f"{n} images of {h * w} pixels, {k} filters are more than a launch turns")
    problem = Conv(
        n=n,
        h=h,
        w=w,
        c=c,
        k=k,
        r=r,
        s=s,
        p=p,
        q=q,
        pads=_two(pads[: len(pads) // 2], 0),
        strides=_two(strides, 1),
        dilations=_two(dilations, 1),
        source_is_vector=parts.chain.source is Source.SCALE,
    )
    operands = operands_of(match, {"x": "x", "weight": "filter"})
    return Described(problem=problem, numbers=parts.numbers, chain=parts.chain, operands=operands)


def _two(values: Sequence[int], missing: int) -> tuple[int, int]:
    first, second = (missing, *values) if len(values) == 1 else values
    return (first, second)


def _along_channels(match: Match, node: NodeContext, name: str, shape: Sequence[int]) -> bool:
    inside = len(node.node.inputs) > 2 and node.node.inputs[2] is match.captures[name]
    given = match.spec(name).static_shape
    return given == (shape[1],) if inside else along_one_axis(given, shape, 1)


def _window(
    node: NodeContext, x: Sequence[int], weight: Sequence[int], result: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return strides, dilations and pads; pads that ONNX leaves to `auto_pad` are derived from the shapes."""
    rank = len(result) - 2
    strides, dilations = (list(node.attribute(name, (1,) * rank)) for name in ("strides", "dilations"))
    automatic = node.attribute("auto_pad", "NOTSET")
    if automatic not in ("SAME_UPPER", "SAME_LOWER"):
        return strides, dilations, list(node.attribute("pads", (0,) * (2 * rank)))
    before, behind = [], []
    for axis in range(rank):
        extent = dilations[axis] * (weight[2 + axis] - 1) + 1
        whole = max(0, (result[2 + axis] - 1) * strides[axis] + extent - x[2 + axis])
        less, more = whole // 2, whole - whole // 2
        before.append(more if automatic == "SAME_LOWER" else less)
        behind.append(less if automatic == "SAME_LOWER" else more)
    return strides, dilations, before + behind
