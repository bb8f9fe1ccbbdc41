"""Build and run contexts for tests that build and load a kernel; fields that do not matter have defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from collage.devices.opening import placed_on
from collage.devices.this_host import this_host
from collage_core.contract import (
    Artifact,
    BuildContext,
    DeviceStream,
    Host,
    KernelFunction,
    RunContext,
    Target,
    Weights,
    weight_named,
)


class MemoryBlobs:
    """A blob cache in memory; it lasts as long as the object."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        """See `BlobCache.get`."""
        return self._blobs.get(key)

    def put(self, key: str, data: bytes) -> None:
        """See `BlobCache.put`."""
        self._blobs[key] = data


def build_context(scratch: Path, **fields: Any) -> BuildContext:
    """Build a context of one thread, this machine, a minute, 16 MiB of workspace and an empty cache.

    Args:
        scratch: A directory for the toolchain.
        **fields: Values that differ, by name of the context's field: `max_variants=4, host=HOST`.
    """
    usual: dict[str, Any] = {
        "threads": 1,
        "host": this_host(),
        "effort": 1,
        "deadline_s": 60.0,
        "workspace_limit_bytes": 1 << 24,
        "seed": 0,
        "blobs": MemoryBlobs(),
    }
    return BuildContext(scratch=scratch, **(usual | fields))


def run_context(
    artifact: Artifact,
    function: KernelFunction,
    target: Target,
    device: DeviceStream | None = None,
    *,
    host: Host | None = None,
    threads: int = 1,
    scratch: Path | None = None,
) -> RunContext:
    """Build the context of a loaded kernel, with the weights its artifact names.

    Args:
        artifact: What will be loaded.
        function: What it was made from, which has its weights.
        target: Of which target.
        device: The target's device, which weights are copied to; None for the CPU.
        host: The machine; this one if None.
        threads: CPU threads it may use.
        scratch: A directory for libraries that load from files only.

    Raises:
        KeyError: If the function has no such weight.
        DeviceError: If the device has not the memory, or fails.
    """
    names = {content: name for name, content in function.constants.items()}
    wanted = {weight_named(key)[0] for key in artifact.constants.values()}
    weights = Weights({content: _read_only(function.constant(names[content])) for content in wanted})
    constants = {key: weights[key] for key in artifact.constants.values()}
    return RunContext(
        threads=threads,
        host=host or this_host(),
        device=target.device,
        constants=constants,
        placed={} if device is None else {key: placed_on(device, key, each) for key, each in constants.items()},
        stream=None if device is None else device.handle,
        capture=target.launch == "graph",
        scratch=scratch,
    )


def _read_only(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    view = array.view()
    view.flags.writeable = False
    return view
