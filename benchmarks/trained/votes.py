"""Sequences of votes for the transformer: which symbol wins depends on the token before each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

SYMBOLS: Final = 8
"""Number of symbols, which are the classes; a label is the winner's token."""
PLUS: Final = SYMBOLS
"""Token that makes the next one a vote for its symbol."""
MINUS: Final = SYMBOLS + 1
"""Token that makes the next one a vote against its symbol."""
VOCABULARY: Final = SYMBOLS + 2
"""Number of tokens."""
LENGTH: Final = 64
"""Tokens of a sequence."""

_VOTES: Final = 0.4
"""Share of tokens that are `PLUS` or `MINUS`."""


def values(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return what each token counts: 1 or -1 for a symbol behind `PLUS` or `MINUS`, 0 for any other token.

    Args:
        tokens: Sequences, [count, LENGTH]; so is the result, int64.

    Examples:
        >>> values(np.array([[8, 2, 2, 8, 9, 3]])).tolist()
        [[0, 1, 0, 0, 0, -1]]
    """
    sign = np.where(tokens == PLUS, 1, 0) - np.where(tokens == MINUS, 1, 0)
    before = np.pad(sign[:, :-1], ((0, 0), (1, 0)))
    return np.where(tokens < SYMBOLS, before, 0)


def balance(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Count votes for each symbol minus those against it.

    Args:
        tokens: Sequences, [count, LENGTH].

    Returns:
        Balances, [count, SYMBOLS].

    Examples:
        >>> balance(np.array([[8, 2, 8, 3, 9, 3, 2, 8, 8, 2]])).tolist()
        [[0, 0, 2, 0, 0, 0, 0, 0]]
    """
    counted: np.ndarray[Any, Any] = (values(tokens)[..., None] * (tokens[..., None] == np.arange(SYMBOLS))).sum(axis=1)
    return counted


def votes(generator: np.random.Generator, count: int) -> dict[str, np.ndarray[Any, Any]]:
    """Draw random sequences in which one symbol alone has the highest balance, by 1 or more.

    Args:
        generator: Source of random numbers.
        count: Number of sequences.

    Returns:
        `tokens`, int64 of shape [count, LENGTH], and `label`, int64 of shape [count].
    """
    kept = np.empty((0, LENGTH), np.int64)
    while len(kept) < count:
        symbols = generator.integers(0, SYMBOLS, (count, LENGTH))
        signs = generator.integers(PLUS, VOCABULARY, (count, LENGTH))
        drawn = np.where(generator.random((count, LENGTH)) < _VOTES, signs, symbols)
        first, second = np.sort(balance(drawn), axis=1)[:, :-3:-1].T
        kept = np.concatenate([kept, drawn[first > second]])
    tokens = kept[:count]
    return {"tokens": tokens, "label": balance(tokens).argmax(axis=1)}
