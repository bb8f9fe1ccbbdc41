"""Convert reports to JSON and back: strict in reading, deterministic in writing."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from typing import Any, TypeVar

import cattrs

from collage.documents.strict import strict_converter
from collage.errors import RecordError
from collage.report.facts.record import SCHEMA_VERSION, Record

T = TypeVar("T")

_NON_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}
"""JSON encoding of non-finite numbers, needed because the error of an output that holds a NaN is infinite."""


def to_jsonable(value: Any) -> Any:
    """Convert a dataclass of this package to dicts, lists and plain values; mappings are sorted by key.

    Examples:
        >>> to_jsonable({"b": (1.0, math.inf), "a": None})
        {'a': None, 'b': [1.0, 'inf']}
    """
    return _converter().unstructure(value)


def to_json(value: Any) -> str:
    """Serialize a report as indented JSON; equal content gives the same text."""
    return dumps(to_jsonable(value))


def dumps(document: Any) -> str:
    """Serialize plain values as JSON with a final newline; keys keep the order given.

    Raises:
        ValueError: If a number is not finite.
    """
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def record_from_document(document: Any, source: str = "record") -> Record:
    """Read a record from plain values, as stored in packages.

    Raises:
        RecordError: If it has another schema version, or does not have exactly a record's fields.
    """
    if not isinstance(document, dict) or "schema_version" not in document:
        raise RecordError(source, "it has no schema_version")
    version = document["schema_version"]
    if version != SCHEMA_VERSION:
        raise RecordError(source, f"its schema version is {version!r}, this Collage reads {SCHEMA_VERSION}")
    return read_part(document, Record, source)


def read_part(document: Any, kind: type[T], source: str) -> T:
    """Read part of a report produced by `to_jsonable`.

    Raises:
        RecordError: If it does not have exactly the fields of `kind`.
    """
    try:
        return _converter().structure(document, kind)
    except Exception as error:  # cattrs raises KeyError, TypeError, ValueError and its own kinds
        raise RecordError(source, " ".join(str(error).split()) or type(error).__name__) from error


def _converter() -> cattrs.Converter:
    converter = strict_converter()
    converter.register_structure_hook(float, _read_float)
    converter.register_unstructure_hook(float, _write_float)
    converter.register_unstructure_hook_func(
        lambda kind: (getattr(kind, "__origin__", None) or kind) in (Mapping, dict, types.MappingProxyType),
        lambda mapping: {key: converter.unstructure(mapping[key]) for key in sorted(mapping)},
    )
    converter.register_unstructure_hook_func(
        lambda kind: (getattr(kind, "__origin__", None) or kind) in (tuple, list),
        lambda items: [converter.unstructure(item) for item in items],
    )
    return converter


def _read_float(value: Any, _: Any) -> float:
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if type(value) not in (int, float):
        raise TypeError(f"expected a number, got {value!r}")
    return float(value)


def _write_float(value: float) -> float | str:
    number = float(value)  # so that 3 and 3.0 are written alike
    return number if math.isfinite(number) else str(number)
