"""Quantised operators in QDQ form: dequantize, operator, quantize.

A toolchain recognises a quantised operator by its neighbours: DequantizeLinear on its inputs, QuantizeLinear on its
outputs (node units in ONNX Runtime, explicit quantisation in TensorRT). `fusion/quantised.py` keeps such a group in
one piece; these patterns are for toolchains that have one kernel for some of them.
"""

from __future__ import annotations

from collage_core.patterns import Pattern, is_absent, is_constant, is_op, variadic, wildcard
from collage_core.patterns.library.epilogue import Activation, any_of

_DOMAINS = ("", "com.microsoft::")
"""Domains of the quantisation operators.

ONNX Runtime's quantiser uses its own domain where ONNX's operators lack an element type.
"""


def dequantize_pattern(of: Pattern | None = None, *, prefix: str = "") -> Pattern:
    """Match a DequantizeLinear with constant scale and zero point, captured as `scale` and `zero_point`.

    Args:
        of: Pattern of the quantised value; by default any value, captured as `quantized`.
        prefix: Prepended to the capture names.
    """
    return _conversion("DequantizeLinear", wildcard().named(f"{prefix}quantized") if of is None else of, prefix)


def quantize_pattern(of: Pattern | None = None, *, prefix: str = "") -> Pattern:
    """Match a QuantizeLinear with constant scale and zero point, captured as `scale` and `zero_point`.

    Args:
        of: Pattern of the value to quantise; by default any value, captured as `real`.
        prefix: Prepended to the capture names.
    """
    return _conversion("QuantizeLinear", wildcard().named(f"{prefix}real") if of is None else of, prefix)


def qdq_pattern(
    *types: str, activation: Activation | None = None, quantizes: bool | None = True, prefix: str = ""
) -> Pattern:
    """Match a quantised operator: its operands dequantized, its result quantized.

    Its first operand (of a commutative operator, one of them) comes from a DequantizeLinear; each further one
    from a DequantizeLinear, optionally through a Transpose or Reshape (of a weight), or it is a constant (a
    bias in float32, a shape, a bound). Operand number n is captured as `operand_n`, as it is before it is
    dequantized, with `operand_n_scale` and `operand_n_zero_point`; the operator's own result as `result`; and
    `output_scale` and `output_zero_point`.

    Args:
        *types: Types of the operator, of one domain.
        activation: The step between the operator and the QuantizeLinear: an operator's type, or a function that
            makes the pattern; None for no activation.
        quantizes: Whether a QuantizeLinear follows; None if it may: without it the result stays real.
        prefix: Prepended to the capture names.

    Examples:
        >>> convolution = qdq_pattern("Conv", activation="Relu") | qdq_pattern("Conv")
        >>> pool = qdq_pattern("MaxPool", "AveragePool", "GlobalAveragePool")
    """

    def operand(number: int) -> Pattern:
        name = f"{prefix}operand_{number}"
        narrow = _conversion("DequantizeLinear", wildcard().named(name), f"{name}_")
        if number == 0:
            return narrow
        turned = is_op("Transpose", "Reshape")(narrow, ...)
        return narrow | turned | is_constant().named(name) | is_absent()

    first, others = operand(0), variadic(lambda place: operand(place + 1))
    result: Pattern = is_op(*types)(first, others)
    result = result.named(f"{prefix}result")
    if activation is not None:
        result = is_op(activation)(result) if isinstance(activation, str) else activation(result)
    if quantizes is False:
        return result
    narrowed = _conversion("QuantizeLinear", result, f"{prefix}output_")
    return narrowed if quantizes else narrowed | result


def _conversion(op_type: str, of: Pattern, prefix: str) -> Pattern:
    scale = is_constant().named(f"{prefix}scale")
    zero_point = (is_constant() | is_absent()).named(f"{prefix}zero_point")
    return any_of(*(is_op(f"{domain}{op_type}")(of, scale, zero_point) for domain in _DOMAINS))
