"""Silence where a library warns of what is no news, or is told as one error later."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def only_errors_of(logger: str) -> Iterator[None]:
    """Keeps a logger from saying anything less than an error.

    Args:
        logger: Its name: mostly the module's.
    """
    found = logging.getLogger(logger)
    level = found.level
    found.setLevel(logging.ERROR)
    try:
        yield
    finally:
        found.setLevel(level)
