"""Notice processes that are started while something is loaded, as compilers are."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any, Final
from unittest import mock

_STARTING: Final[tuple[tuple[Any, str], ...]] = (
    (subprocess.Popen, "__init__"),
    *((os, name) for name in ("posix_spawn", "posix_spawnp", "system") if hasattr(os, name)),
)


@contextlib.contextmanager
def started_processes() -> Iterator[list[str]]:
    """Give a list to which the program of each process is added that Python code starts inside.

    An audit hook would see more, but it stays, and makes everything in the process many times as slow.
    """
    noticed: list[str] = []
    with contextlib.ExitStack() as stack:
        for owner, name in _STARTING:
            stack.enter_context(mock.patch.object(owner, name, _noting(getattr(owner, name), noticed)))
        yield noticed


def _noting(start: Callable[..., Any], noticed: list[str]) -> Callable[..., Any]:
    @functools.wraps(start)
    def started(*arguments: Any, **options: Any) -> Any:
        given = [each for each in arguments if not isinstance(each, subprocess.Popen)]
        noticed.append(str(given[0] if given else options.get("args", start.__name__)))
        return start(*arguments, **options)

    return started
