"""What lowering makes and loading takes: bytes, and the callable they become."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from collage_core.contract.buffer import Buffer

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """Something an artifact needs of the machine it is loaded on, checked before it is loaded.

    Attributes:
        kind: `"library"` (name and PEP 440 version specifier), `"isa"` (a CPU feature flag such as
            `avx512f`), `"compute_capability"`, `"driver"`.
        name: What: a distribution name, a flag, a device.
        specifier: Accepted versions, e.g. `"==2026.4.1"`; empty when presence is enough.
    """

    kind: str
    name: str
    specifier: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """One candidate lowered to bytes, for one call site: its weights are in it or named by it.

    Attributes:
        files: Content by file name; names are plain (no directories).
        metadata: Whatever the plugin needs to load it, as JSON.
        requires: What the machine must have.
        constants: Weights the artifact does not embed: name as the plugin knows it -> content hash. They
            are supplied at load.
        workspace_bytes: Scratch memory a bound call needs; the caller provides it.
        variant: Name of the variant among those `collage_lower` yielded.
        capturable: Whether its calls may be captured in a device graph.
        deterministic: Whether equal inputs give equal bits.
        dynamic: Whether one artifact serves several input shapes.
    """

    files: Mapping[str, bytes]
    metadata: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    requires: tuple[Requirement, ...] = ()
    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    workspace_bytes: int = 0
    variant: str = ""
    capturable: bool = False
    deterministic: bool = True
    dynamic: bool = False


class BlobCache(Protocol):
    """Bytes a toolchain wants to keep between builds: timing caches, compiled libraries.

    Namespaced by toolchain and fingerprint and kept in the tuning database.
    """

    def get(self, key: str) -> bytes | None:
        """Returns what was put under `key`, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Keeps `data` under `key`, durable on return; replaces an earlier value."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildContext:
    """How a kernel is to be built.

    Attributes:
        threads: CPU threads the kernel may use.
        effort: 0 (quick) to 2 (extensive): how much tuning is worth.
        deadline_s: Seconds until the worker is killed.
        workspace_limit_bytes: Most scratch memory a variant may ask for.
        seed: For anything random.
        blobs: The toolchain's own cache.
        scratch: A directory of the worker's own, emptied now and then.
        launch: How kernels are launched when deployed: `"eager"`, `"graph"`.
    """

    threads: int
    effort: int
    deadline_s: float
    workspace_limit_bytes: int
    seed: int
    blobs: BlobCache
    scratch: Path
    launch: str = "eager"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where and how a loaded kernel will run.

    Attributes:
        threads: CPU threads it may use.
        device: `"cpu"` or `"cuda:0"`.
        constants: Weights by content hash, read-only arrays shared between kernels.
        stream: Device stream to enqueue on, as an integer handle; None on the CPU.
        capture: Whether calls will be captured in a device graph.
        scratch: A directory for libraries that load from files only; lives as long as the kernel.
    """

    threads: int
    device: str = "cpu"
    constants: Mapping[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)
    stream: int | None = None
    capture: bool = False
    scratch: Path | None = None


BoundCall: TypeAlias = Callable[[], Any]
"""A kernel with every buffer fixed: call it, and the outputs are written. Its return value is ignored."""


class Kernel(Protocol):
    """A loaded artifact."""

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """Fixes the buffers of one call.

        Destination passing: a call reads `inputs`, writes `outputs`, allocates nothing it returns and never
        writes an input. A kernel may be bound several times; bound calls of one kernel never run at the
        same time. GPU kernels enqueue on the context's stream and do not synchronise.

        Args:
            inputs: Buffers in the order of the kernel function's inputs.
            outputs: Buffers in the order of its outputs, distinct from each other and from the inputs.
            workspace: `Artifact.workspace_bytes` bytes, or None when that is 0.

        Returns:
            The call. For planned buffers, their addresses do not change between calls; for bounded and
            foreign ones it reads `Buffer.value` and writes with `Buffer.put` each time.

        Raises:
            KernelError: If a buffer does not fit.
        """
