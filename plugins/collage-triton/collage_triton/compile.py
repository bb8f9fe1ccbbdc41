"""Compile generated source to a cubin, ahead of time; Triton's compiler needs no GPU for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from collage_triton.elements import POINTERS
from collage_triton.errors import Refused
from collage_triton.module import kernel_of
from collage_triton.nest import Parameter
from collage_triton.tiles import Tile

ALIGNED_BYTES = 16
"""Address alignment assumed by the faster of an artifact's two cubins: the widest load of a thread."""

_SHARED_KIB: Mapping[str, int] = MappingProxyType(
    {"8.0": 163, "8.6": 99, "8.7": 163, "8.9": 99, "12.0": 99, "12.1": 99}
)
"""Most shared memory of a program in KiB, by compute capability; 227 from 9.0 on.

CUDA C++ Programming Guide, table "Technical Specifications per Compute Capability".
"""


@dataclasses.dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel's machine code and its launch parameters.

    Attributes:
        cubin: Machine code for one compute capability.
        name: Name of its function.
        threads: Threads of a program.
        shared_bytes: Dynamic shared memory of a program.
        scratch: Pointers that follow the kernel's own arguments; these kernels do not use them.
    """

    cubin: bytes
    name: str
    threads: int
    shared_bytes: int
    scratch: int


def compile_kernel(
    source: str, parameters: Sequence[Parameter], tile: Tile, capability: str, *, aligned: bool, cache: Path
) -> Compiled:
    """Compile a kernel.

    Args:
        source: Source of its module.
        parameters: The kernel's parameters.
        tile: Tile that determines the number of warps.
        capability: Compute capability of the device it will run on: `"9.0"`.
        aligned: Whether every address is a multiple of `ALIGNED_BYTES`.
        cache: A folder for Triton's own cache.

    Raises:
        Refused: If it needs more shared memory than the device has.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    triton.knobs.cache.dir = str(cache)
    number = int(capability.replace(".", ""))
    attributes = {(place,): [["tt.divisibility", ALIGNED_BYTES]] for place in range(len(parameters))} if aligned else {}
    code = ASTSource(
        fn=kernel_of(source), signature={each.name: POINTERS[each.dtype] for each in parameters}, attrs=attributes
    )
    # fused multiply-add rounds once where the reference rounds twice; said here because the default will change
    options = {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": True}
    compiled: Any = triton.compile(code, target=GPUTarget("cuda", number, 32), options=options)
    metadata = compiled.metadata
    if metadata.shared > _SHARED_KIB.get(capability, 227) * 1024:
        raise Refused(f"{tile.name} needs {metadata.shared} bytes of shared memory")
    if getattr(metadata, "global_scratch_size", 0) or getattr(metadata, "profile_scratch_size", 0):
        raise Refused(f"{tile.name} needs scratch memory of its own")
    scratch = sum(hasattr(metadata, f"{kind}_scratch_size") for kind in ("global", "profile"))
    return Compiled(
        cubin=bytes(compiled.asm["cubin"]),
        name=str(metadata.name),
        threads=32 * int(metadata.num_warps),
        shared_bytes=int(metadata.shared),
        scratch=scratch,
    )
