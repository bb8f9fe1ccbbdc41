"""Matrix products, with what libraries compute together with them."""

from __future__ import annotations

from collage_core.patterns import NodeContext, Pattern, is_op, wildcard
from collage_core.patterns.library.epilogue import Activation, any_of, finished, vector, wanted
from collage_core.patterns.pattern import Operator


def matmul_pattern(
    *,
    bias: bool | None = False,
    activation: Activation | None = None,
    residual: bool | None = False,
    transposed: bool | None = False,
    prefix: str = "",
) -> Pattern:
    """A product of matrices: MatMul, or a Gemm that scales nothing.

    activation(a @ b + bias + residual), where `b` is computed or constant, and each part may be asked for. Captured are
    `a`, `b`, `bias`, `residual`, `product` (the operator's own result) and `activation`.

    Args:
        bias: Whether a vector is added, by an Add or as Gemm's third operand; None if it may be. Along which axis it
            goes and what is the product's batch is for `check` to say.
        activation: What comes last: an operator's type, or a function that makes the pattern, such as `gelu_pattern`.
        residual: Whether a computed value is added after the bias; None if it may be.
        transposed: Whether `b` is given with its last two axes swapped, by a Transpose or by Gemm's `transB`; None if
            it may be. `b` is what is given.
        prefix: Goes before the names, where a pattern holds two products.

    Examples:
        >>> from collage_core.patterns import match_model
        >>> from collage_core.testing import dense
        >>> found = match_model(matmul_pattern(bias=True, activation="Relu"), dense(activation="Relu"))
        >>> sorted(found.captures)
        ['a', 'activation', 'b', 'bias', 'product']
    """
    a, b, added = wildcard().named(f"{prefix}a"), wildcard().named(f"{prefix}b"), vector(f"{prefix}bias")
    swapped = is_op("Transpose").which(_swaps_last_axes, "a swap of the last two axes")(b)
    gemm = is_op("Gemm").has_attr(alpha=1.0, transA=0)
    as_it_is: list[tuple[Operator, Pattern]] = [(is_op("MatMul"), b), (gemm.has_attr(transB=0), b)]
    turned: list[tuple[Operator, Pattern]] = [
        (is_op("MatMul"), swapped),
        (gemm.has_attr(transB=0), swapped),
        (gemm.has_attr(transB=1), b),
    ]
    ways = turned + as_it_is if transposed is None else turned if transposed else as_it_is
    alone = any_of(*(operator(a, second) for operator, second in ways)).named(f"{prefix}product")
    inside = any_of(
        *(operator.has_attr(beta=1.0)(a, second, added) for operator, second in ways if "Gemm" in operator.op_types)
    ).named(f"{prefix}product")
    product = wanted(alone, inside | is_op("Add")(alone, added), bias)
    return finished(product, residual=residual, activation=activation, prefix=prefix)


def _swaps_last_axes(node: NodeContext) -> bool:
    data = node.inputs[0]
    rank = None if data is None or data.shape is None else len(data.shape)
    if rank is None or rank < 2:
        return False
    order = node.attribute("perm", tuple(reversed(range(rank))))
    return bool(order == (*range(rank - 2), rank - 1, rank - 2))
