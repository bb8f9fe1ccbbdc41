"""Dataclasses to JSON and back without a guess: the converter of messages, packages, reports and the database."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cattrs

from collage_core.ir.values.size_range import Extent, SizeRange


def strict_converter(*, forbid_extra_keys: bool = True, detailed_validation: bool = False) -> cattrs.Converter:
    """Return a converter that refuses unknown keys and never converts between types.

    Args:
        forbid_extra_keys: False to ignore unknown keys instead.
        detailed_validation: Whether errors say where in a document they are; that makes reading slower.

    Examples:
        >>> strict_converter().structure("3", int)
        Traceback (most recent call last):
        TypeError: expected int, got '3'
    """
    converter = cattrs.Converter(detailed_validation=detailed_validation, forbid_extra_keys=forbid_extra_keys)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _finite)
    converter.register_structure_hook_func(lambda kind: kind == Extent, _extent)
    converter.register_unstructure_hook(SizeRange, str)
    converter.register_unstructure_hook_func(lambda kind: getattr(kind, "__origin__", kind) is frozenset, sorted)
    return converter


def _extent(value: Any, _: Any) -> int | SizeRange:
    if type(value) is str:
        return SizeRange.parse(value)
    return int(_exactly(int)(value, int))


def _finite(value: Any, _: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"expected a finite number, got {value!r}")
    return float(value)


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def read(value: Any, _: Any) -> Any:
        if type(value) is not kind:  # bool is an int, and int("3") would pass
            raise TypeError(f"expected {kind.__name__}, got {value!r}")
        return value

    return read
