"""Spelling of single terms in Triton's language: operators, functions, numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

from collage_triton.elements import TRITON_TYPES
from collage_triton.terms import Term, value_of

INFIX: Mapping[str, str] = MappingProxyType(
    {
        "add": "+",
        "sub": "-",
        "mul": "*",
        "div": "/",
        "floordiv": "//",
        "mod": "%",
        "and": "&",
        "or": "|",
        "xor": "^",
        "lt": "<",
        "le": "<=",
        "gt": ">",
        "ge": ">=",
        "eq": "==",
        "ne": "!=",
    }
)
"""Infix operators of two terms, by the term's name."""
CALLS: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: f"tl.{name}({{}})"
            for name in ("abs", "ceil", "cos", "erf", "exp", "exp2", "floor", "log", "log2", "sin")
        },
        "sqrt": "tl.sqrt_rn({})",
        "neg": "-{}",
        "not": "{} == 0",
        "invert": "~{}",
    }
)
"""Functions of one term."""
_IDENTITIES: Mapping[str, Mapping[bool, str]] = MappingProxyType(
    {
        "sum": {True: "0.0", False: "0"},
        "prod": {True: "1.0", False: "1"},
        "max": {True: 'float("-inf")', False: "{least}"},
        "min": {True: 'float("inf")', False: "{most}"},
    }
)
_LIMITS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"i64": (-(1 << 63), (1 << 63) - 1), "i32": (-(1 << 31), (1 << 31) - 1), "i8": (-128, 127), "u8": (0, 255)}
)
_STEPS: Mapping[str, str] = MappingProxyType(
    {
        "sum": "{acc} + {new}",
        "prod": "{acc} * {new}",
        "max": "tl.maximum({acc}, {new})",
        "min": "tl.minimum({acc}, {new})",
    }
)


def identity(kind: str, dtype: str) -> str:
    """Return the neutral element of a reduction.

    Examples:
        >>> identity("max", "i8"), identity("prod", "f32")
        ('-128', '1.0')
    """
    least, most = _LIMITS.get(dtype, (0, 0))
    return _IDENTITIES[kind][dtype == "f32"].format(least=least, most=most)


def step(kind: str, so_far: str, new: str) -> str:
    """Return the expression that combines two parts of a reduction.

    Examples:
        >>> step("sum", "t0", "t1")
        't0 + t1'
    """
    return _STEPS[kind].format(acc=so_far, new=new)


def _is_wrapped(text: str) -> bool:
    """Return whether the first bracket closes with the last."""
    if not text.startswith("("):
        return False
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return place == len(text) - 1
    return False


def bare(text: str) -> str:
    """Return an expression without brackets around the whole of it.

    Examples:
        >>> bare("(a + b)"), bare("(a) + (b)")
        ('a + b', '(a) + (b)')
    """
    return text[1:-1] if _is_wrapped(text) else text


def literal(term: Term) -> str:
    """Return the literal of a constant, in brackets if it is negative."""
    value = value_of(term)
    if isinstance(value, bool):
        return repr(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f"({value!r})" if value < 0 else repr(value)


def full(term: Term) -> str:
    """Return a constant as a tile of one element; a literal number would have no type of its own.

    Examples:
        >>> from collage_triton.terms import Terms
        >>> full(Terms().const(-1.5, "f32")), full(Terms().const(-math.inf, "f32"))
        ('tl.full([1, 1], -1.5, tl.float32)', 'tl.full([1, 1], float("-inf"), tl.float32)')
    """
    return f"tl.full([1, 1], {bare(literal(term))}, {TRITON_TYPES[term.dtype]})"
