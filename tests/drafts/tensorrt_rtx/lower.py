"""A region as an engine built ahead of time for the device of the target, wherever this runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from collage_core.contract import (
    Artifact,
    BuildContext,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
    ValueKind,
)
from collage_core.ir.model_io import model_to_bytes
from tests.drafts.tensorrt_rtx.engine import LIBRARY, EngineSettings, build_engine

ENGINE = "engine.bin"
_LEVELS = (0, 2, 3)
"""`builder_optimization_level` by effort."""
_DRIVER = ">=580"
"""What CUDA 13 needs (CUDA Toolkit release notes, table of driver versions)."""


def lower(
    library: Any, target: Target, function: KernelFunction, build: BuildContext
) -> Iterator[Artifact] | Unsupported:
    """Builds one engine, or takes it from the blob cache.

    Weights are inside, so the key has the hash of the whole model instead of the structural one. RTX's timing caches do
    nothing (deprecated in 1.2); what it caches when it runs is made on the device.
    """
    for spec in (*function.inputs, *function.outputs):
        if spec.kind is not ValueKind.PLANNED:
            return Unsupported(f"the shape of {spec.name!r} is not known before it runs")
    device = build.host.device(target.device)
    if device is None:
        return Unsupported(f"the machine has no {target.device}")
    model = model_to_bytes(function.model)
    settings = EngineSettings(
        compute_capability=device.compute_capability,
        workspace_bytes=build.workspace_limit_bytes,
        level=_LEVELS[build.effort],
    )
    key = f"engine/{hashlib.sha256(repr(settings).encode() + model).hexdigest()}"
    engine = build.blobs.get(key)
    if engine is None:
        made = build_engine(library, model, settings, device)
        if isinstance(made, str):
            return Unsupported(made)
        engine = made
        build.blobs.put(key, engine)
    artifact = Artifact(
        files={ENGINE: engine},
        metadata={
            "inputs": [spec.name for spec in function.inputs],
            "outputs": [spec.name for spec in function.outputs],
        },
        requires=(
            Requirement(kind="library", name=LIBRARY, specifier=f"=={library.__version__}"),
            Requirement(kind="compute_capability", name="cuda", specifier=f"=={device.compute_capability}"),
            Requirement(kind="driver", name="cuda", specifier=_DRIVER),
        ),
        variant=f"level{settings.level}",
        capturable=True,
    )
    return iter((artifact,))
