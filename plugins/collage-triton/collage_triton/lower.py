"""Lower a kernel function to variants of two cubins each: for addresses as core aligns them, and for any."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
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

ALIGNED, ANY = _CUBINS = "aligned.cubin", "any.cubin"
SOURCE = "kernel.py"

Compile: TypeAlias = Callable[..., Compiled]
"""`compile_kernel`, or its replacement in a test."""


def lower(
    target: Target, function: KernelFunction, build: BuildContext, version: str, compile_kernel: Compile
) -> Iterator[Artifact] | Unsupported:
    """Generate and compile a function, once per arrangement, on demand.

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
        """Yield an artifact for each arrangement that fits on the device.

        As many are compiled at once as there are threads, and all of these before the first is yielded: what a compiler
        does while a kernel is timed, in the same process, disturbs it.
        """
        threads = max(1, self.build.threads)
        at_once = -(-threads // len(_CUBINS))
        with ThreadPoolExecutor(max_workers=threads) as pool:
            for first in range(0, len(wanted), at_once):
                variants = [_Variant(self, tile, pool) for tile in wanted[first : first + at_once]]
                wait(future for variant in variants for future in variant.futures)
                for variant in variants:
                    try:
                        yield variant.artifact()
                    except Refused:
                        continue


class _Variant:
    """One arrangement. Its cubins are taken from the cache, for equal groups have equal sources, or compiled.

    The cache is asked and told by the thread that makes this and asks for the artifact: nothing says that it may be by
    several.

    Args:
        of: What is arranged.
        tile: How.
        pool: Compiles.

    Attributes:
        futures: What is compiled.
    """

    def __init__(self, of: _Variants, tile: Tile, pool: ThreadPoolExecutor) -> None:
        self._of, self._tile = of, tile
        self._source = source_of(of.nest, tile) if of.nest.stores else ""
        self._cubins: dict[str, Compiled | Future[Compiled]] = {}
        for name in _CUBINS if of.nest.stores else ():
            known = of.build.blobs.get(self._key(name))
            if known is None:
                self._cubins[name] = pool.submit(self._compiled, name)
            else:
                head, _, cubin = known.partition(b"\n")
                self._cubins[name] = Compiled(cubin=cubin, **json.loads(head))
        self.futures = [each for each in self._cubins.values() if isinstance(each, Future)]

    def artifact(self) -> Artifact:
        """Return the artifact, when everything is compiled.

        Raises:
            Refused: If it does not fit on the device.
        """
        of = self._of
        files = {SOURCE: self._source.encode()} if self._cubins else {}
        launches: dict[str, Any] = {}
        for name, each in self._cubins.items():
            compiled = each.result() if isinstance(each, Future) else each
            facts = {key: value for key, value in dataclasses.asdict(compiled).items() if key != "cubin"}
            if isinstance(each, Future):
                of.build.blobs.put(self._key(name), json.dumps(facts).encode() + b"\n" + compiled.cubin)
            files[name], launches[name] = compiled.cubin, facts
        constants = {
            each.place: of.function.constants[each.place] for each in of.nest.parameters if isinstance(each.place, str)
        }
        return Artifact(
            files=files,
            metadata={
                "grid": list(grid_of(of.nest, self._tile)),
                "launches": launches,
                "arguments": [[each.name.rstrip("0123456789"), each.place] for each in of.nest.parameters],
            },
            requires=(
                Requirement(kind="compute_capability", name="cuda", specifier=f"=={of.device.compute_capability}"),
                Requirement(kind="driver", name="cuda", specifier=f">={oldest_driver(of.device)}"),
            ),
            constants=constants,
            variant=self._tile.name,
            capturable=True,
            deterministic=True,
        )

    def _key(self, name: str) -> str:
        of, tile = self._of, self._tile
        capability = of.device.compute_capability
        text = json.dumps([self._source, tile.name, tile.stages, name == ALIGNED, capability, of.version])
        return hashlib.sha256(text.encode()).hexdigest()

    def _compiled(self, name: str) -> Compiled:
        of = self._of
        return of.compile_kernel(
            self._source,
            of.nest.parameters,
            self._tile,
            of.device.compute_capability,
            aligned=name == ALIGNED,
            cache=of.build.scratch / "triton",
        )
