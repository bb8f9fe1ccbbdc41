"""Algorithms of the library's heuristic, each a variant."""

from __future__ import annotations

import hashlib
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
from collage_core.ir.content import constant_of
from collage_core.patterns import Match, Mismatch, match_model
from collage_cublas.describing import Described
from collage_cublas.library import Config, DataType, Found, Library, Preference, Reduction
from collage_cublas.patterns import FORMS, matcher_of
from collage_cublas.product import Product
from collage_cublas.reading import product_of, stored

ALGORITHM = "algorithm.bin"


def lower(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Asks for as many algorithms as core will try, or takes those it was told before from the blob cache.

    Args:
        library: The library.
        handle: Gives its handle on the device, which is not needed where the cache has all.
        target: Says the precision.
        device: What it is built for.
        function: Labelled with one of `FORMS`.
        build: Limits, and how many variants or which one.

    Raises:
        CublasError: If the library fails.
    """
    form = FORMS.get(function.composite)
    if form is None:
        return Unsupported(f"{function.composite!r} is none of its composites")
    found = match_model(matcher_of(form), function.model)
    if isinstance(found, Mismatch):
        return Unsupported(f"not {function.composite}: {found.reason}")
    product = product_of(found, activation=form.activation, precision=target.option("precision"))
    if isinstance(product, Unsupported):
        return product
    if product.dtype == DataType.R_16BF and device.compute_capability.startswith("7."):
        return Unsupported(f"{device.model} multiplies no bfloat16, which begins with compute capability 8.0")
    known = _algorithms(library, handle, target, device, product, function, build)
    wanted = [each for each in known if build.variant in (None, variant_name(each))]
    if not wanted:
        what = "no algorithm" if build.variant is None else f"no algorithm {build.variant!r}"
        return Unsupported(f"the library's heuristic finds {what}")
    requires = (
        Requirement(kind="compute_capability", name="cuda", specifier=f"=={device.compute_capability}"),
        Requirement(kind="device", name=device.model),
    )
    operands, constants = _operands(function, found)
    return (
        Artifact(
            files={ALGORITHM: each.algorithm},
            metadata={"product": product.to_json(), "operands": operands, "version": library.version()},
            requires=requires,
            constants=constants,
            workspace_bytes=each.workspace_bytes,
            variant=variant_name(each),
            capturable=True,
            deterministic=is_deterministic(each),
        )
        for each in wanted
    )


def variant_name(found: Found) -> str:
    """By what it is, not by its place in a list that may be ordered otherwise next time.

    Algorithm, tile and stages are numbers of the library's; the hash is of all 64 bytes.
    """
    get = found.config.get
    digest = hashlib.sha256(found.algorithm).hexdigest()[:8]
    tile, stages = get(Config.TILE_ID), get(Config.STAGES_ID)
    return f"algo{get(Config.ID)}_tile{tile}_stages{stages}_split{splits(found)}_{digest}"


def splits(found: Found) -> int:
    """In how many parts, computed side by side, it sums up."""
    return max(1, found.config.get(Config.SPLITK_NUM, 1))


def is_deterministic(found: Found) -> bool:
    """Whether it always adds up in the same order.

    Parts that are stored and then reduced in a step of their own are. Of those added up in the output itself, the
    library says that counters keep them from meeting, not which comes first.
    """
    return splits(found) == 1 or not found.config.get(Config.REDUCTION_SCHEME, 0) & Reduction.INPLACE


def reductions(dtype: DataType) -> Reduction:
    """How parts of a sum may be added up so that the result is as exact as without parts.

    In place and in the output's type, parts are rounded to that type: to float32, as they are anyway, or to 16 bits.
    """
    exact = Reduction.NONE | Reduction.COMPUTE_TYPE
    return exact | Reduction.INPLACE | Reduction.OUTPUT_TYPE if dtype == DataType.R_32F else exact


def _algorithms(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    product: Product,
    function: KernelFunction,
    build: BuildContext,
) -> list[Found]:
    """Those remembered if they suffice, else what the heuristic says now."""
    limit, precision = build.workspace_limit_bytes, target.option("precision")
    key = f"{function.structural_hash}/{device.fingerprint}/{precision}/{limit}"
    asked, known = _remembered(build.blobs.get(key))
    if build.variant is None and asked >= build.max_variants:
        return known[: build.max_variants]
    if any(variant_name(each) == build.variant for each in known):
        return known
    count = max(1, asked, build.max_variants)
    with Described(library, product) as described:
        preference = library.preference()
        try:
            library.set(preference, Preference.MAX_WORKSPACE_BYTES, limit)
            library.set(preference, Preference.REDUCTION_SCHEME_MASK, int(reductions(product.dtype)))
            for operand in "ABCD":
                library.set(preference, Preference[f"MIN_ALIGNMENT_{operand}_BYTES"], DEVICE_ALIGNMENT_BYTES)
            answered = library.heuristic(handle(), described.matmul(), preference, count)
        finally:
            library.destroy(preference)
    known = list({each.algorithm: each for each in answered if each.workspace_bytes <= limit}.values())
    build.blobs.put(key, json.dumps({"asked": count, "found": [_kept(each) for each in known]}).encode())
    return known


def _operands(function: KernelFunction, found: Match) -> tuple[dict[str, int | str], dict[str, str]]:
    """Where each operand comes from, an input's position or a weight's name; and the hashes of those weights."""
    positions = {value: place for place, value in enumerate(function.model.graph.inputs)}
    operands: dict[str, int | str] = {}
    constants: dict[str, str] = {}
    for name in ("a", "b", "bias", "residual"):
        if name not in found.captures:
            continue
        value, _ = stored(found, name)
        if constant_of(value) is None:
            operands[name] = positions[value]
        else:
            operands[name] = str(value.name)
            constants[str(value.name)] = function.constants[str(value.name)]
    return operands, constants


def _kept(found: Found) -> list[object]:
    config = {each.name: value for each, value in found.config.items()}
    return [found.algorithm.hex(), found.workspace_bytes, config]


def _remembered(kept: bytes | None) -> tuple[int, list[Found]]:
    """For how many was asked, and what was answered."""
    if kept is None:
        return 0, []
    read = json.loads(kept)
    found = [
        Found(bytes.fromhex(algorithm), size, {Config[name]: value for name, value in config.items()})
        for algorithm, size, config in read["found"]
    ]
    return int(read["asked"]), found
