"""Lower a region to engines, one for each optimization level worth trying."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from collage_core.contract import (
    PRECISIONS,
    Artifact,
    BuildContext,
    Device,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
    ValueKind,
)
from collage_core.errors import LoweringError
from collage_tensorrt.determinism import why_other_bits
from collage_tensorrt.editions import Edition, listed
from collage_tensorrt.engine import Settings, build_engine
from collage_tensorrt.halved import halved

ENGINE = "engine.plan"

LEVELS = ((2,), (3,), (3, 5))
"""Values of `builder_optimization_level` by effort, a variant each.

2 tries only what its heuristics put first; 3 is the library's default; 5 compiles and compares all it can,
which may take minutes, so it is used when there is time for more than one variant.
"""

_MOST = 5


def lower(
    edition: Edition,
    library: Any,
    activate: Callable[[str], None],
    target: Target,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Build engines.

    Args:
        edition: Edition of TensorRT.
        library: Module of the edition.
        activate: Makes a device the current one, if kernels are timed on it.
        target: Target with its device and precision.
        function: The candidate.
        build: Effort and blob cache.

    Raises:
        DeviceError: If kernels have to be timed on the device and it cannot be used.
    """
    for spec in (*function.inputs, *function.outputs):
        if spec.kind is not ValueKind.PLANNED:
            return Unsupported(f"the shape of {spec.name!r} is not known before it runs")
    device = build.host.device(target.device)
    if device is None:
        return Unsupported(f"the machine has no {target.device}")
    if build.deterministic and (reason := why_other_bits(edition, function.model)):
        return Unsupported(reason)
    precision = target.rounded_precision
    if precision in PRECISIONS:
        narrow = halved(function, PRECISIONS[precision])
        if isinstance(narrow, Unsupported):
            return narrow
        function = narrow
    if edition.ahead_of_time and listed(library, device) is None:
        return Unsupported(f"it does not build for compute capability {device.compute_capability}")
    if not edition.ahead_of_time:
        activate(target.device)
    levels: tuple[int, ...] = LEVELS[build.effort]
    if build.variant is not None:  # it may have won when more, or less, effort was made
        levels = tuple(level for level in range(_MOST + 1) if _variant(level) == build.variant)
    make = functools.partial(_engine, edition, library, target, device, function, build)
    if not levels:
        return Unsupported(f"there is no variant {build.variant!r}")
    first = make(levels[0])
    if isinstance(first, str):
        return Unsupported(first)
    return itertools.chain((first,), _others(target, make, levels[1:]))


def _others(target: Target, make: Callable[[int], Artifact | str], levels: Sequence[int]) -> Iterator[Artifact]:
    for level in levels:
        made = make(level)
        if isinstance(made, str):
            raise LoweringError(f"{target.name} built its first engine, and none at level {level}: {made}")
        yield made


def _variant(level: int) -> str:
    return f"level{level}"


def _engine(
    edition: Edition,
    library: Any,
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
    level: int,
) -> Artifact | str:
    """Build one engine, or return why there is none."""
    settings = Settings(
        device=device,
        level=level,
        workspace_bytes=build.workspace_limit_bytes,
        tf32=target.option("precision") == "tf32",
    )
    engine = build_engine(edition, library, function.model, function.inputs, settings, build.blobs)
    if isinstance(engine, str):
        return engine
    return Artifact(
        files={ENGINE: engine},
        metadata={
            "version": str(library.__version__),
            "inputs": [spec.name for spec in function.inputs],
            "outputs": [spec.name for spec in function.outputs],
        },
        requires=requirements(edition, device),
        variant=_variant(level),
        capturable=True,
        deterministic=not why_other_bits(edition, function.model),
    )


def requirements(edition: Edition, device: Device) -> tuple[Requirement, ...]:
    """Return the requirements of an engine.

    An engine whose kernels were timed on a device requires that device model; one built ahead of time runs on any
    device of its compute capability. The library's version is in the metadata: not every TensorRT is a Python
    distribution.
    """
    found = [Requirement(kind="compute_capability", name=device.kind, specifier=f"=={device.compute_capability}")]
    if (oldest := edition.oldest_driver()) is not None:
        found.append(Requirement(kind="driver", name=device.kind, specifier=f">={oldest}"))
    if not edition.ahead_of_time:
        found.append(Requirement(kind="device", name=device.model))
    return tuple(found)
