"""Operators that a plugin misspells."""

from __future__ import annotations

from collage_core.contract import Target
from collage_core.errors import CollageError, did_you_mean
from collage_core.ir.operators.names import operator_names
from collage_core.registry import Toolchain
from collage_testing.kit.clauses import SPELLING


def misspelt_operators(toolchain: Toolchain, target: Target) -> list[str]:
    """Return a problem for each operator that has a predicate and is none of ONNX's: no node is ever asked about it.

    Operators of domains that ONNX does not know are anybody's.
    """
    try:
        registered = toolchain.pattern_table(target).predicates
    except CollageError as error:
        return [f"{target.name}: {error}"]
    problems = []
    for key in registered:
        domain, _, name = key.rpartition("::")
        known = operator_names().get("" if domain == "ai.onnx" else domain)
        if key != "*" and known is not None and name not in known:
            problem = f"{target.name}: ONNX has no operator {key!r}{did_you_mean(name, known)}"
            problems.append(SPELLING.broken(problem))
    return problems
