"""Matrix products, with what libraries compute together with them."""

from __future__ import annotations

from collections.abc import Sequence

from collage_core.ir.tensor_spec import TensorSpec
from collage_core.patterns import NodeContext, Pattern, is_op, wildcard
from collage_core.patterns.library.epilogue import Activation, any_of, finished, is_vector, vector, wanted
from collage_core.patterns.pattern import Operator


def matmul_pattern(
    *,
    bias: bool | None = False,
    activation: Activation | None = None,
    residual: bool | None = False,
    transposed: bool | None = False,
    scaled: bool = False,
    operands: Sequence[tuple[Pattern, Pattern]] = (),
    prefix: str = "",
) -> Pattern:
    """A product of matrices: MatMul, or a Gemm, which scales nothing unless asked for.

    activation(a @ b + bias + residual), where `b` is computed or constant, and each part may be asked for. Captured are
    `a`, `b`, `bias`, `residual`, `product` (the operator's own result) and `activation`.

    Args:
        bias: Whether a vector is added, by an Add or as Gemm's third operand; None if it may be. Along which axis it
            goes and what is the product's batch is for `check` to say.
        activation: What comes last: an operator's type, or a function that makes the pattern, such as `gelu_pattern`.
        residual: Whether a computed value is added after the bias; None if it may be.
        transposed: Whether `b` is given with its last two axes swapped, by a Transpose or by Gemm's `transB`; None if
            it may be. `b` is what is given.
        scaled: Whether a Gemm may have any `alpha`, `beta`, `transA` and `transB`, which are then for `check` to look
            up in `product`; a third operand that is no vector is the residual.
        operands: What `a` and `b` look like, the preferred pair first; any values unless told. Whatever they match is
            captured by those names.
        prefix: Goes before the names, where a pattern holds two products.

    Examples:
        >>> from collage_core.patterns import match_model
        >>> from collage_core.testing import dense
        >>> found = match_model(matmul_pattern(bias=True, activation="Relu"), dense(activation="Relu"))
        >>> sorted(found.captures)
        ['a', 'activation', 'b', 'bias', 'product']
    """
    added = vector(f"{prefix}bias")
    ways: list[tuple[Operator, Pattern, Pattern]] = []
    for first, second in operands or ((wildcard(), wildcard()),):
        ways += _ways(first.named(f"{prefix}a"), second.named(f"{prefix}b"), transposed, scaled)
    alone = any_of(*(operator(a, b) for operator, a, b in ways)).named(f"{prefix}product")
    gemms = [(op if scaled else op.has_attr(beta=1.0), a, b) for op, a, b in ways if "Gemm" in op.op_types]
    inside = any_of(*(operator(a, b, added) for operator, a, b in gemms)).named(f"{prefix}product")
    product = wanted(alone, inside | is_op("Add")(alone, added), bias)
    if not scaled or residual is False:
        return finished(product, residual=residual, activation=activation, prefix=prefix)
    whole = wildcard().where(_is_no_vector, "the shape of no vector").named(f"{prefix}residual")
    inside = any_of(*(operator(a, b, whole) for operator, a, b in gemms)).named(f"{prefix}product")
    by_gemm = wanted(inside, is_op("Add")(inside, added), bias)
    by_add = finished(product, residual=residual, activation=None, prefix=prefix)
    return finished(by_gemm | by_add, residual=False, activation=activation, prefix=prefix)


def _ways(a: Pattern, b: Pattern, transposed: bool | None, scaled: bool) -> list[tuple[Operator, Pattern, Pattern]]:
    """Operators and their operands: `b` turned, as it is, or either."""
    swapped = is_op("Transpose").which(_swaps_last_axes, "a swap of the last two axes")(b)
    gemm = is_op("Gemm") if scaled else is_op("Gemm").has_attr(alpha=1.0, transA=0)
    plain = gemm if scaled else gemm.has_attr(transB=0)
    as_it_is: list[tuple[Operator, Pattern, Pattern]] = [(is_op("MatMul"), a, b), (plain, a, b)]
    turned: list[tuple[Operator, Pattern, Pattern]] = [(is_op("MatMul"), a, swapped), (plain, a, swapped)]
    turned += [] if scaled else [(gemm.has_attr(transB=1), a, b)]
    return turned + as_it_is if transposed is None else turned if transposed else as_it_is


def _is_no_vector(spec: TensorSpec) -> bool:
    return spec.shape is not None and not is_vector(spec)


def _swaps_last_axes(node: NodeContext) -> bool:
    data = node.inputs[0]
    rank = None if data is None or data.shape is None else len(data.shape)
    if rank is None or rank < 2:
        return False
    order = node.attribute("perm", tuple(reversed(range(rank))))
    return bool(order == (*range(rank - 2), rank - 1, rank - 2))
