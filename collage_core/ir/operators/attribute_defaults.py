"""Default values of attributes that a node does not set."""

from __future__ import annotations

import functools
from typing import Any

import onnx


@functools.cache  # a look-up by name in ONNX's registry, asked again for every node a pattern is tried at
def default_attribute(op_type: str, name: str, version: int, domain: str = "") -> Any:
    """Return the default of an attribute: a number, a string or a tuple of these; None if there is none.

    None is also returned for an unknown operator or attribute.

    Args:
        op_type: Operator type.
        name: Name of the attribute.
        version: Opset version of the domain.
        domain: Domain of the operator, `""` for ai.onnx.

    Examples:
        >>> default_attribute("Gemm", "alpha", 21), default_attribute("Softmax", "axis", 11)
        (1.0, 1)
        >>> default_attribute("Conv", "strides", 21), default_attribute("Foo", "alpha", 21)
        (None, None)
    """
    if version < 1 or not onnx.defs.has(op_type, version, domain):
        return None
    attribute = onnx.defs.get_schema(op_type, version, domain).attributes.get(name)
    if attribute is None or attribute.default_value.type == onnx.AttributeProto.UNDEFINED:
        return None
    value = onnx.helper.get_attribute_value(attribute.default_value)
    if isinstance(value, bytes):
        return value.decode()
    return tuple(value) if isinstance(value, list) else value
