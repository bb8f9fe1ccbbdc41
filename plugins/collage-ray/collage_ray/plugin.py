"""What the entry point refers to. Importing this imports no Ray."""

from __future__ import annotations

from collage_core.contract import Runner
from collage_core.errors import UsageError


def open_ray(text: str) -> Runner:
    """Open the runner of a cluster; see `collage_core.contract.OpenRunner`.

    Args:
        text: `ray://HOST:PORT` for Ray's client; `ray:auto` or `ray:HOST:PORT` on a machine of the cluster.

    Raises:
        UsageError: If it is neither.
        RunnerError: If Ray does not reach it.
    """
    address = text if text.startswith("ray://") else text.partition(":")[2]
    if not text.startswith("ray:") or address in ("", "ray://") or address.startswith("/"):
        raise UsageError(f"{text!r} names no Ray cluster: write ray://HOST:PORT, or ray:auto on one of its machines")
    from collage_ray.runner import RayRunner

    return RayRunner(text, address)
