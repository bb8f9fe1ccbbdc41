"""Load generated source as a module from which Triton's `inspect` calls can read a kernel's text."""

from __future__ import annotations

import hashlib
import linecache
from typing import Any

from collage_triton.emit import KERNEL


def kernel_of(source: str) -> Any:
    """Return the kernel that generated source defines with `triton.jit`."""
    name = f"<collage-triton {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "collage_triton.generated"}
    exec(compile(source, name, "exec"), namespace)
    return namespace[KERNEL]
