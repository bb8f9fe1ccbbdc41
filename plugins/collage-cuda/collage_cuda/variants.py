"""Variants that are made as they are asked for."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator

from collage_core.contract import Artifact, Unsupported


def begun(variants: Generator[Artifact, None, str]) -> Iterator[Artifact] | Unsupported:
    """Make the first variant, and the others when they are asked for; or say why there is none.

    Args:
        variants: Yields variants, and returns the reason if there is none.
    """
    try:
        first = next(variants)
    except StopIteration as nothing:
        return Unsupported(str(nothing.value))
    return itertools.chain((first,), variants)
