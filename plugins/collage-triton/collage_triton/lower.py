"""Lower a kernel function to variants of two cubins each: for addresses as core aligns them, and for any."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BuildContext,
    Device,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
    in_precision,
)
from collage_triton.compile import Compiled
from collage_triton.emit import grid_of, source_of
from collage_triton.errors import Refused
from collage_triton.machine import oldest_driver
from collage_triton.nest import Nest, nest_of
from collage_triton.tiles import Tile, tiles

ALIGNED, ANY = "aligned.cubin", "any.cubin"
SOURCE = "kernel.py"

Compile: TypeAlias = Callable[..., Compiled]
"""`compile_kernel`, or its replacement in a test."""


def lower(
    target: Target, function: KernelFunction, build: BuildContext, version: str, compile_kernel: Compile
) -> Iterator[Artifact] | Unsupported:
    """Generate and compile a function, once per arrangement, each on demand.

    Args:
        target: Target that determines the device and the precision of products.
        function: The group.
        build: The machine, and how many variants or which one.
        version: Version of Triton.
        compile_kernel: Compiles the source.
    """
    device = build.host.device(target.device)
    if device is None:
        return Unsupported(f"the machine that is built for has no device {target.device}")
    precision = target.option("precision")
    if precision in PRECISIONS:
        narrowed = in_precision(function, PRECISIONS[precision])
        if isinstance(narrowed, Unsupported):
            return narrowed
        function = narrowed
    try:
        nest = nest_of(function, "tf32" if precision == "tf32" else "ieee")
    except Refused as refusal:
        return Unsupported(refusal.reason)
    wanted = tiles(nest)
    if build.variant is not None:
        wanted = tuple(each for each in wanted if each.name == build.variant)
        if not wanted:
            return Unsupported(f"it has no variant {build.variant!r} of this group")
    return _Variants(function, build, nest, device, version, compile_kernel).made(wanted[: build.max_variants])


@dataclasses.dataclass(frozen=True)
class _Variants:
    function: KernelFunction
    build: BuildContext
    nest: Nest
    device: Device
    version: str
    compile_kernel: Compile

    def made(self, wanted: tuple[Tile, ...]) -> Iterator[Artifact]:
        """Yield an artifact for each arrangement that fits on the device."""
        for tile in wanted:
            try:
                yield self._artifact(tile)
            except Refused:
                continue

    def _artifact(self, tile: Tile) -> Artifact:
        grid = grid_of(self.nest, tile)
        files: dict[str, bytes] = {}
        launches: dict[str, Any] = {}
        if self.nest.stores:
            source = source_of(self.nest, tile)
            files[SOURCE] = source.encode()
            for name in (ALIGNED, ANY):
                compiled = self._compiled(source, tile, name == ALIGNED)
                files[name] = compiled.cubin
                launches[name] = {key: value for key, value in dataclasses.asdict(compiled).items() if key != "cubin"}
        constants = {
            each.place: self.function.constants[each.place]
            for each in self.nest.parameters
            if isinstance(each.place, str)
        }
        return Artifact(
            files=files,
            metadata={
                "grid": list(grid),
                "launches": launches,
                "arguments": [[each.name.rstrip("0123456789"), each.place] for each in self.nest.parameters],
            },
            requires=(
                Requirement(kind="compute_capability", name="cuda", specifier=f"=={self.device.compute_capability}"),
                Requirement(kind="driver", name="cuda", specifier=f">={oldest_driver(self.device)}"),
            ),
            constants=constants,
            variant=tile.name,
            capturable=True,
            deterministic=True,
        )

    def _compiled(self, source: str, tile: Tile, aligned: bool) -> Compiled:
        """Compile a source, or return it from the cache: equal groups have equal sources."""
        capability = self.device.compute_capability
        text = json.dumps([source, tile.name, tile.stages, aligned, capability, self.version])
        key = hashlib.sha256(text.encode()).hexdigest()
        known = self.build.blobs.get(key)
        if known is not None:
            head, _, cubin = known.partition(b"\n")
            return Compiled(cubin=cubin, **json.loads(head))
        compiled = self.compile_kernel(
            source, self.nest.parameters, tile, capability, aligned=aligned, cache=self.build.scratch / "triton"
        )
        facts = {key: value for key, value in dataclasses.asdict(compiled).items() if key != "cubin"}
        self.build.blobs.put(key, json.dumps(facts).encode() + b"\n" + compiled.cubin)
        return compiled
