"""Suppress library warnings that are redundant or reported later as one error."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def only_errors_of(logger: str) -> Iterator[None]:
    """Suppress messages of a logger below the level of an error.

    Args:
        logger: Name of the logger, usually the module's name.
    """
    found = logging.getLogger(logger)
    level = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(level)
