"""Lowering results and loading inputs: artifacts as bytes, and the kernels loaded from them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np

from collage_core.contract.buffer import Buffer, buffer_over
from collage_core.contract.host import Host

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """A requirement of an artifact on the machine that loads it, checked before loading.

    Attributes:
        kind: `"library"` (name and PEP 440 version specifier), `"isa"` (a CPU feature flag such as
            `avx512f`); for the device of the artifact's target: `"device"` (its model), `"compute_capability"`,
            `"driver"`.
        name: A distribution name, a flag, a device's model as in `Device.model`, or the kind of device, `"cuda"`.
        specifier: Accepted versions, e.g. `"==2026.4.1"`, or for a compute capability `">=8.0,<10"`; empty if
            presence is enough.
    """

    kind: str
    name: str
    specifier: str = ""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a requirement names what it is about")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Artifact:
    """One candidate lowered to bytes, for one call site: its weights are in it or named by it.

    Attributes:
        files: Content by file name; names are plain (`contract.names`): no folders, nothing some system cannot hold.
        metadata: Whatever the plugin needs to load it, as JSON.
        requires: What the machine must have.
        constants: Weights the artifact does not embed: name as the plugin knows it -> content hash. They
            are supplied at load; one named by `converted(hash, dtype)` in that type, converted once for all kernels.
        workspace_bytes: Scratch memory a bound call needs; the caller provides it, the same to kernels that run one
            after the other. Where only loading tells how much that is, a `SizedKernel` does.
        variant: Name of the variant among those `collage_lower` yielded.
        capturable: Whether its calls may be captured in a device graph.
        deterministic: Whether equal inputs give equal bits, whenever and however often it runs: no sum is in an order
            that chance decides, as of atomic additions, or of parts that are added up as they get ready.
    """

    files: Mapping[str, bytes]
    metadata: Mapping[str, Json] = dataclasses.field(default_factory=dict)
    requires: tuple[Requirement, ...] = ()
    constants: Mapping[str, str] = dataclasses.field(default_factory=dict)
    workspace_bytes: int = 0
    variant: str = ""
    capturable: bool = False
    deterministic: bool = True


class BlobCache(Protocol):
    """Bytes that a toolchain keeps between builds, such as timing caches and compiled libraries.

    The cache is namespaced by toolchain and fingerprint, and stored in the tuning database, which other
    machines and processes may share. A key must therefore name everything else that the bytes depend on:
    `KernelFunction.structural_hash`, features of the CPU or the device, threads. There is no lock: if two
    processes write one key, the last write wins. Accumulating data (a timing cache) must be read again and
    merged before each write. Any entry may be missing. Loading an artifact has no access to the cache: results
    that are expensive to compute belong in the artifact.
    """

    def get(self, key: str) -> bytes | None:
        """Return the data stored under `key`, or None."""

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, at most 512 MiB, under `key`, durable on return; replace an earlier value.

        Raises:
            TypeError: If `data` is not bytes or `key` is not text.
            ValueError: If there are too many bytes, or the text cannot be encoded.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class BuildContext:
    """How a kernel is to be built.

    Attributes:
        threads: CPU threads the kernel may use.
        host: The machine the kernel will run on, its devices included: compile for it, not for the one this runs on.
        effort: 0 (quick) to 2 (extensive): how much tuning is worth.
        deadline_s: Seconds until the worker is killed.
        tuning_s: Seconds, like `deadline_s` from the call of `collage_lower` on, after which no further variant is
            asked for: tuning that takes longer has nobody to yield to. Checking and timing what was yielded counts.
        max_variants: Most variants that will be asked for, and so how many algorithms to ask a library for.
        variant: Name of the only variant wanted, known from an earlier build of an equal function on an equal machine:
            make it without making the others first. None for all.
        workspace_limit_bytes: Most scratch memory a variant may ask for.
        seed: For anything random.
        blobs: The toolchain's own cache.
        scratch: A directory of the worker's own, emptied now and then.
        launch: How kernels are launched when deployed: `"eager"`, `"graph"`.
        deterministic: Whether only variants are wanted whose artifacts are `deterministic`. Others that are yielded are
            passed over, and do not count; where a library is asked for so many, ask it for such.
    """

    threads: int
    host: Host
    effort: int
    deadline_s: float
    workspace_limit_bytes: int
    seed: int
    blobs: BlobCache
    scratch: Path
    launch: str = "eager"
    tuning_s: float = math.inf
    max_variants: int = 1
    variant: str | None = None
    deterministic: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunContext:
    """Where and how a loaded kernel will run.

    Attributes:
        threads: CPU threads it may use.
        host: The machine it runs on, its devices included.
        device: `"cpu"` or `"cuda:0"`.
        constants: Weights by what `Artifact.constants` calls them, read-only arrays in the CPU's memory shared between
            kernels. Those converted for a kernel of another device may be there only.
        placed: The same weights where kernels of another device read them; see `weight`.
        stream: Device stream to enqueue on, as an integer handle; None on the CPU.
        capture: Whether calls will be captured in a device graph: after one call that is not, none may allocate,
            synchronise or copy from memory that is not pinned.
        scratch: A directory for libraries that load from files only; lives as long as the kernel.
    """

    threads: int
    host: Host
    device: str = "cpu"
    constants: Mapping[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)
    stream: int | None = None
    capture: bool = False
    scratch: Path | None = None
    placed: Mapping[str, Buffer] = dataclasses.field(default_factory=dict)

    def weight(self, content: str) -> Buffer:
        """Return a weight in the memory the kernel reads it from.

        On a device all kernels share one copy; on the CPU it is the array itself.

        Args:
            content: Key of the weight in `Artifact.constants`: its content hash, optionally followed by a dtype.

        Raises:
            KeyError: If the weight was not supplied.
        """
        if self.device == "cpu":
            return buffer_over(content, self.constants[content])
        return self.placed[content]


BoundCall: TypeAlias = Callable[[], Any]
"""A kernel with every buffer bound: calling it writes the outputs. Its return value is ignored."""


class Kernel(Protocol):
    """A loaded artifact."""

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """Bind the buffers of one call.

        Destination passing: a call reads `inputs`, writes `outputs`, allocates nothing it returns and never
        writes an input. A kernel may be bound several times; bound calls of one kernel never run at the
        same time, unless it is a `ReentrantKernel`. GPU kernels enqueue on the context's stream and do not synchronise.

        Args:
            inputs: Buffers in the order of the kernel function's inputs.
            outputs: Buffers in the order of its outputs, distinct from each other and from the inputs.
            workspace: A buffer of the size that the artifact, or a `SizedKernel`, requests; None when that is 0. Its
                contents are not preserved between calls.

        Returns:
            The bound call. The addresses of planned buffers do not change between calls; bounded and foreign buffers
            are read from `Buffer.value` and written with `Buffer.put` on each call. Arrays in foreign buffers are
            C-contiguous and aligned to their elements. What a kernel puts there is a new array each time: it belongs
            to who reads the buffer, callers of the model included.

        Raises:
            KernelError: If a buffer does not fit. Where the model's sizes are new, a kernel that takes sized values is
                bound to foreign buffers for these, and for all inputs and outputs of the model. One that cannot take
                that raises this error, and is bound to planned ones.
        """


@runtime_checkable
class ReentrantKernel(Kernel, Protocol):
    """A kernel whose bound calls may run concurrently, each on its own buffers.

    Clones of a session share this kernel, its weights and its threads; other kernels are loaded once per clone.

    Attributes:
        reentrant: Always True; marks the kernel as reentrant.
    """

    reentrant: Literal[True]


@runtime_checkable
class SizedKernel(Kernel, Protocol):
    """A kernel whose scratch memory size is known only after loading.

    An engine built for several devices, or built on a machine without one, needs the size determined by the
    device it is loaded on.

    Attributes:
        workspace_bytes: Scratch memory that a bound call needs.
    """

    workspace_bytes: int


def workspace_of(artifact: Artifact, kernel: Kernel) -> int:
    """Return the scratch memory that calls of a loaded artifact need, in bytes."""
    loaded = kernel.workspace_bytes if isinstance(kernel, SizedKernel) else 0
    return max(artifact.workspace_bytes, loaded)
