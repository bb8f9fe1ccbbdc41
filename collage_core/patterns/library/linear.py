"""Matrix products, with the operators that libraries fuse into them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from collage_core.ir.values.tensor_spec import TensorSpec
from collage_core.patterns import NodeContext, Pattern, is_op, wildcard
from collage_core.patterns.library.arithmetic import scaled as multiplied
from collage_core.patterns.library.epilogue import Activation, Steps, any_of, finished, is_vector, vector
from collage_core.patterns.pattern import Operator


def matmul_pattern(
    *,
    bias: bool | None = False,
    activation: Activation | None = None,
    residual: bool | None = False,
    transposed: bool | None = False,
    scaled: bool = False,
    factor: bool | None = False,
    viewed: bool | None = False,
    operands: Sequence[tuple[Pattern, Pattern]] = (),
    prefix: str = "",
) -> Pattern:
    """Match a matrix product: MatMul, or a Gemm, which by default must not scale.

    activation(a @ b + bias + residual), where `b` is computed or constant, and each part is optional. Captures
    `a`, `b`, `bias`, `residual`, `product` (the operator's own result) and `activation`. A factor's number is
    captured as `product_factor` or `product_divisor` if it scales the product, and as `a_factor` etc. if it
    scales an operand.

    Args:
        bias: Whether a vector is added, by an Add or as Gemm's third operand; None if it may be. The axis it is
            added along and the product's batch axes are left to `check`.
        activation: The last step: an operator's type, or a function that makes the pattern, such as
            `gelu_pattern`.
        residual: Whether a computed value is added after the bias; None if it may be.
        transposed: Whether `b` is given with its last two axes swapped, by a Transpose or by Gemm's `transB`;
            None if it may be. The capture `b` is the value as given.
        scaled: Whether a Gemm may have any `alpha`, `beta`, `transA` and `transB`, which `check` then has to
            look up in `product`; a third operand that is not a vector is the residual.
        factor: Whether `a`, `b` or both, or else the product before any addition, is multiplied or divided by a
            constant number; None if it may be. A scaled operand is captured after scaling, and has no other
            reader.
        viewed: Whether a view, such as a Reshape, stands between the product and a later step; None if it may.
        operands: Patterns of `a` and `b`, the preferred pair first; any values by default. The matched values are
            captured by those names.
        prefix: Prepended to the capture names, for patterns with two products.

    Examples:
        >>> from collage_core.patterns import match_model
        >>> from collage_testing import dense
        >>> found = match_model(matmul_pattern(bias=True, activation="Relu"), dense(activation="Relu"))
        >>> sorted(found.captures)
        ['a', 'activation', 'b', 'bias', 'product']
    """
    pairs = list(operands) or [(wildcard(), wildcard())]
    numbers = [] if factor is False else _with_factors(pairs, prefix)
    turned = functools.partial(_ways, transposed=transposed, scaled=scaled, prefix=prefix)
    ways = turned(pairs)
    scaled_ways = turned(numbers)
    taken = scaled_ways if factor else scaled_ways + ways
    alone: Pattern = any_of(*(operator(a, b) for operator, a, b in taken)).named(f"{prefix}product")
    if factor is not False:
        plain = any_of(*(operator(a, b) for operator, a, b in ways)).named(f"{prefix}product")
        alone = multiplied(plain, f"{prefix}product") | alone
    gemms = [(is_op("Gemm") if scaled else op.has_attr(beta=1.0), a, b) for op, a, b in taken if "Gemm" in op.op_types]

    def inside(third: Pattern) -> Steps:
        return Steps(any_of(*(operator(a, b, third) for operator, a, b in gemms)).named(f"{prefix}product"))

    added = vector(f"{prefix}bias")
    biased = inside(added).either(Steps(alone).then(lambda each: is_op("Add")(each, added)))
    product = biased if bias else Steps(alone) if bias is False else biased.either(Steps(alone))
    whole = finished(product, residual=residual, activation=None, prefix=prefix)
    if scaled and residual is not False:
        matrix = wildcard().where(_is_no_vector, "the shape of no vector").named(f"{prefix}residual")
        whole = inside(matrix).then(lambda each: is_op("Add")(each, added), bias).either(whole)
    return finished(whole, residual=False, activation=activation, prefix=prefix).chosen(viewed)


def _with_factors(pairs: Sequence[tuple[Pattern, Pattern]], prefix: str) -> list[tuple[Pattern, Pattern]]:
    """Return the operand pairs with both or one of the operands scaled."""
    found: list[tuple[Pattern, Pattern]] = []
    for a, b in pairs:
        first, second = (multiplied(each, f"{prefix}{name}").used_once() for each, name in ((a, "a"), (b, "b")))
        found += [(first, second), (first, b), (a, second)]
    return found


def _ways(
    pairs: Sequence[tuple[Pattern, Pattern]], transposed: bool | None, scaled: bool, prefix: str
) -> list[tuple[Operator, Pattern, Pattern]]:
    """List operators with their operands: `b` transposed, as it is, or either."""
    gemm = is_op("Gemm").has_attr(alpha=1.0, transA=0)
    whole = [is_op("MatMul", "Gemm")] if scaled else [is_op("MatMul"), gemm.has_attr(transB=0)]
    found: list[tuple[Operator, Pattern, Pattern]] = []
    for first, second in pairs:
        a, b = first.named(f"{prefix}a"), second.named(f"{prefix}b")
        swapped = is_op("Transpose").which(_swaps_last_axes, "a swap of the last two axes")(b)
        as_it_is: list[tuple[Operator, Pattern, Pattern]] = [(operator, a, b) for operator in whole]
        turned: list[tuple[Operator, Pattern, Pattern]] = [(operator, a, swapped) for operator in whole]
        turned += [] if scaled else [(gemm.has_attr(transB=1), a, b)]
        found += turned + as_it_is if transposed is None else turned if transposed else as_it_is
    return found


def _is_no_vector(spec: TensorSpec) -> bool:
    return spec.shape is not None and not is_vector(spec)


def _swaps_last_axes(node: NodeContext) -> bool:
    data = node.inputs[0]
    rank = None if data is None or data.shape is None else len(data.shape)
    if rank is None or rank < 2:
        return False
    order = node.attribute("perm", tuple(reversed(range(rank))))
    return bool(order == (*range(rank - 2), rank - 1, rank - 2))
