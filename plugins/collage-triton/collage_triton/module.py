"""Generated source as a module: Triton reads a kernel's text, and finds it where `inspect` looks."""

from __future__ import annotations

import hashlib
import linecache
from typing import Any

from collage_triton.emit import KERNEL


def kernel_of(source: str) -> Any:
    """The kernel that generated source defines, made by `triton.jit`."""
    name = f"<collage-triton {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "collage_triton.generated"}
    exec(compile(source, name, "exec"), namespace)
    return namespace[KERNEL]
