"""What an application puts around the calls of plugins' code in its own process.

Core reads no machine, so it only says where such code begins and ends; see `collage_core.plugin_calls`.
"""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeAlias

CallGuard: TypeAlias = Callable[[str, str], AbstractContextManager[None]]
"""Called with the name of a toolchain and of its hook; the plugin's code runs within the context it returns."""

_GUARDS: contextvars.ContextVar[tuple[CallGuard, ...]] = contextvars.ContextVar("guards", default=())

LEFT_OUT = "COLLAGE_LEFT_OUT"
"""Environment variable with entry points that are not to be loaded: a JSON object from their names to the reasons.

The `collage` command sets it for itself when a plugin ended its process.
"""


@contextlib.contextmanager
def guarded_by(guard: CallGuard) -> Iterator[None]:
    """Have a guard surround every call of a plugin's code that is made in this context.

    Guards nest: one that was set earlier surrounds those set later.
    """
    token = _GUARDS.set((*_GUARDS.get(), guard))
    try:
        yield
    finally:
        _GUARDS.reset(token)


@contextlib.contextmanager
def guarded(toolchain: str, hook: str) -> Iterator[None]:
    """Surround one call with the guards that are set."""
    with contextlib.ExitStack() as stack:
        for guard in _GUARDS.get():
            stack.enter_context(guard(toolchain, hook))
        yield


def left_out() -> dict[str, str]:
    """Return the entry points that are not to be loaded, with the reasons."""
    return {str(name): str(reason) for name, reason in json.loads(os.environ.get(LEFT_OUT) or "{}").items()}
