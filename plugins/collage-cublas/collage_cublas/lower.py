"""Lower a product to artifacts: each algorithm of the library's heuristic is a variant."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable, Iterator

from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    Artifact,
    BuildContext,
    Device,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
)
from collage_core.patterns import Mismatch, match_model
from collage_cublas.describing import Described
from collage_cublas.library import Config, DataType, Found, Library, NotSupportedError, Preference, Reduction
from collage_cublas.patterns import FORMS, matcher_of
from collage_cublas.product import Product
from collage_cublas.reading import product_of
from collage_cublas.sources import Sources, sources, ways_for
from collage_cublas.ways import Way

ALGORITHM = "algorithm.bin"


def lower(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Query as many algorithms as core will try, or read earlier answers from the blob cache.

    Args:
        library: The cuBLASLt library.
        handle: Returns its handle on the device; not called where the cache has all algorithms.
        target: Target that determines the precision.
        device: Device to build for.
        function: Function labelled with one of `FORMS`.
        build: Limits, and how many variants or which one.

    Returns:
        The variants, alternating between a precision's ways; or why there is none.

    Raises:
        CublasError: If the library fails other than by refusing.
        DeviceError: If the device does not have the memory, or is lost.
    """
    form = FORMS.get(function.composite)
    if form is None:
        return Unsupported(f"{function.composite!r} is none of its composites")
    found = match_model(matcher_of(form), function.model)
    if isinstance(found, Mismatch):
        return Unsupported(f"not {function.composite}: {found.reason}")
    precision = target.option("precision")
    lowering = _Lowering(library, handle, device, function, build, precision)
    made: list[list[_Variant]] = []
    refused: list[Unsupported] = []
    for way in ways_for(precision, found):
        product = product_of(found, activation=form.activation, precision=precision, way=way)
        if isinstance(product, Unsupported):
            return product
        if product.dtype == DataType.R_16BF and device.compute_capability.startswith("7."):
            return Unsupported(f"{device.model} multiplies no bfloat16, which begins with compute capability 8.0")
        operands = sources(function, found, way)
        if isinstance(operands, Unsupported):
            return operands  # a weight that is out of range is so however it is rounded
        try:
            made.append(lowering.variants(way, product, operands))
        except NotSupportedError as error:
            refused.append(Unsupported(str(error)))
    in_turn = [each for row in itertools.zip_longest(*made) for each in row if each is not None]
    wanted = [each for each in in_turn if build.variant in (None, each.name)]
    if not wanted:
        what = "no algorithm" if build.variant is None else f"no algorithm {build.variant!r}"
        return refused[0] if refused else Unsupported(f"the library's heuristic finds {what}")
    return (lowering.artifact(each) for each in wanted)


@dataclasses.dataclass(frozen=True, slots=True)
class _Variant:
    """One algorithm for one way to multiply."""

    way: Way
    product: Product
    sources: Sources
    found: Found

    @property
    def name(self) -> str:
        name = variant_name(self.found)
        return f"{self.way.name}_{name}" if self.way.name else name


@dataclasses.dataclass(frozen=True, slots=True)
class _Lowering:
    """State shared by all ways of one candidate."""

    library: Library
    handle: Callable[[], int]
    device: Device
    function: KernelFunction
    build: BuildContext
    precision: str

    def variants(self, way: Way, product: Product, operands: Sources) -> list[_Variant]:
        """Return the algorithms of one way; none if another way's variant is requested.

        Raises:
            NotSupportedError: If the library has none.
            CublasError: If it fails.
        """
        if self.build.variant is not None and way.name and not self.build.variant.startswith(f"{way.name}_"):
            return []
        limit = self.build.workspace_limit_bytes - operands.cast_bytes
        if limit < 0:
            raise NotSupportedError(f"what is rounded takes {operands.cast_bytes} bytes of workspace, too many")
        return [_Variant(way, product, operands, found) for found in self._algorithms(way, product, limit)]

    def artifact(self, variant: _Variant) -> Artifact:
        """Serialize a variant; in its workspace, rounded operands lie after the algorithm's memory."""
        found, operands = variant.found, variant.sources
        used = -(-found.workspace_bytes // DEVICE_ALIGNMENT_BYTES) * DEVICE_ALIGNMENT_BYTES
        casts = [[position, used + offset, elements] for position, offset, elements in operands.casts]
        return Artifact(
            files={ALGORITHM: found.algorithm},
            metadata={
                "product": variant.product.to_json(),
                "operands": dict(operands.operands),
                "casts": casts,
                "algorithm_workspace_bytes": found.workspace_bytes,
                "version": self.library.version(),
            },
            requires=(
                Requirement(kind="compute_capability", name="cuda", specifier=f"=={self.device.compute_capability}"),
                Requirement(kind="device", name=self.device.model),
            ),
            constants=operands.constants,
            workspace_bytes=used + operands.cast_bytes if casts else found.workspace_bytes,
            variant=variant.name,
            capturable=True,
            deterministic=is_deterministic(found),
        )

    def _algorithms(self, way: Way, product: Product, limit: int) -> list[Found]:
        """Return the cached algorithms if they suffice, else those the heuristic returns now."""
        build = self.build
        kinds = reductions(product.dtype)
        if build.deterministic:
            kinds &= ~Reduction.INPLACE
        key = f"{self.function.structural_hash}/{self.device.fingerprint}/{self.precision}/{way.name}/{limit}/{kinds:d}"
        asked, known = _remembered(build.blobs.get(key))
        if build.variant is None and asked >= build.max_variants:
            return known[: build.max_variants]
        if build.variant is not None and any(build.variant.endswith(variant_name(each)) for each in known):
            return known
        count = max(1, asked, build.max_variants)
        with Described(self.library, product) as described:
            preference = self.library.preference()
            try:
                self.library.set(preference, Preference.MAX_WORKSPACE_BYTES, limit)
                self.library.set(preference, Preference.REDUCTION_SCHEME_MASK, int(kinds))
                for operand in "ABCD":
                    self.library.set(preference, Preference[f"MIN_ALIGNMENT_{operand}_BYTES"], DEVICE_ALIGNMENT_BYTES)
                answered = self.library.heuristic(self.handle(), described.matmul(), preference, count)
            finally:
                self.library.destroy(preference)
        known = list({each.algorithm: each for each in answered if each.workspace_bytes <= limit}.values())
        build.blobs.put(key, json.dumps({"asked": count, "found": [_kept(each) for each in known]}).encode())
        return known


def variant_name(found: Found) -> str:
    """Return a name derived from the algorithm itself, not from its place in a list whose order may change.

    Algorithm, tile and stages are the library's identifiers; the hash is of all 64 bytes.
    """
    get = found.config.get
    digest = hashlib.sha256(found.algorithm).hexdigest()[:8]
    tile, stages = get(Config.TILE_ID), get(Config.STAGES_ID)
    return f"algo{get(Config.ID)}_tile{tile}_stages{stages}_split{splits(found)}_{digest}"


def splits(found: Found) -> int:
    """Return the number of parts, computed in parallel, into which an algorithm splits the sum."""
    return max(1, found.config.get(Config.SPLITK_NUM, 1))


def is_deterministic(found: Found) -> bool:
    """Return whether an algorithm always accumulates in the same order.

    NVIDIA's cuBLAS documentation, "Results Reproducibility": a version of the library gives the same bits in
    every run on GPUs of the same architecture with the same number of multiprocessors, unless several streams
    are active; then it may choose another implementation for want of workspace, which `cublasLtMatmul` with a
    workspace of the caller's does not. It is called that way here, with an algorithm that was chosen before.

    The section on `cublasLtReductionScheme_t` promises less: for sums that are split and accumulated in the
    output itself it says that counters keep the parts from colliding, not which comes first. Such algorithms
    are therefore not treated as deterministic. Parts that are stored in the workspace are reduced in a step of
    their own.
    """
    return splits(found) == 1 or not found.config.get(Config.REDUCTION_SCHEME, 0) & Reduction.INPLACE


def reductions(dtype: DataType) -> Reduction:
    """Return the reduction schemes whose results are as exact as those without a split sum.

    In-place schemes and those in the output's type round parts to that type: to float32, which happens anyway,
    or to 16 bits.
    """
    exact = Reduction.NONE | Reduction.COMPUTE_TYPE
    return exact | Reduction.INPLACE | Reduction.OUTPUT_TYPE if dtype == DataType.R_32F else exact


def _kept(found: Found) -> list[object]:
    config = {each.name: value for each, value in found.config.items()}
    return [found.algorithm.hex(), found.workspace_bytes, config]


def _remembered(kept: bytes | None) -> tuple[int, list[Found]]:
    """Return the number of algorithms that were requested, and those that were returned."""
    if kept is None:
        return 0, []
    read = json.loads(kept)
    found = [
        Found(bytes.fromhex(algorithm), size, {Config[name]: value for name, value in config.items()})
        for algorithm, size, config in read["found"]
    ]
    return int(read["asked"]), found
