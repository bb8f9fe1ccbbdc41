"""Names of ONNX's operators."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import onnx


@functools.cache
def operator_names() -> Mapping[str, frozenset[str]]:
    """Return the types of all operators that ONNX has or had, by domain; `""` is ai.onnx.

    Examples:
        >>> "Relu" in operator_names()[""], "Rleu" in operator_names()[""]
        (True, False)
    """
    names: dict[str, set[str]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        names.setdefault(schema.domain, set()).add(schema.name)
    return {domain: frozenset(each) for domain, each in names.items()}
