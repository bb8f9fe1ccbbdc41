"""Summarise a kernel's operators in a few words."""

from __future__ import annotations

import collections
from collections.abc import Sequence

_LONGEST_PATTERN = 12


def summarize_operators(operators: Sequence[str], width: int = 48) -> str:
    """Summarize operators in execution order, repeated runs written once; counts by type if that is too long.

    Args:
        operators: Operator type of each node in execution order.
        width: Maximum number of characters.

    Examples:
        >>> summarize_operators(["Conv", "Relu", "Conv", "Relu", "Conv", "Relu", "MaxPool"])
        'Conv+Relu x3, MaxPool'
        >>> summarize_operators(["Add", "Conv", "Mul", "Add", "Conv", "Relu", "Add"], width=20)
        'Add x3, Conv x2, ...'
    """
    if not operators:
        return "nothing"
    text = ", ".join(_runs(operators))
    return text if len(text) <= width else _counts(operators, width)


def _runs(operators: Sequence[str]) -> list[str]:
    runs: list[str] = []
    plain: list[str] = []
    position = 0
    while position < len(operators):
        length, times = _repetition(operators, position)
        if times == 1:
            plain.append(operators[position])
            position += 1
            continue
        if plain:
            runs.append("+".join(plain))
            plain = []
        runs.append(f"{'+'.join(operators[position : position + length])} x{times}")
        position += length * times
    if plain:
        runs.append("+".join(plain))
    return runs


def _repetition(operators: Sequence[str], start: int) -> tuple[int, int]:
    """Return length and number of repetitions of the pattern from `start` that covers most operators.

    Of two that cover equally many, the shorter one is taken.
    """
    best = (1, 1)
    for length in range(1, min(_LONGEST_PATTERN, (len(operators) - start) // 2) + 1):
        pattern = list(operators[start : start + length])
        times = 1
        while list(operators[start + times * length : start + (times + 1) * length]) == pattern:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = (length, times)
    return best


def _counts(operators: Sequence[str], width: int) -> str:
    counts = collections.Counter(operators)
    ordered = sorted(counts, key=lambda operator: (-counts[operator], operator))
    parts = [f"{operator} x{counts[operator]}" if counts[operator] > 1 else operator for operator in ordered]
    if len(", ".join(parts)) <= width:
        return ", ".join(parts)
    shown: list[str] = []
    for part in parts:
        if shown and len(", ".join([*shown, part, "..."])) > width:
            break
        shown.append(part)
    return ", ".join([*shown, "..."])
