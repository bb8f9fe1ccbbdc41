"""A draft of a toolchain on TensorRT for RTX. Importing this imports no TensorRT."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from collage_core.contract import (
    Artifact,
    BuildContext,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.ir.model_io import model_to_bytes
from collage_core.ir.refused import refused_nodes
from collage_core.patterns import NodeContext, PatternTable
from tests.drafts.tensorrt_rtx.engine import capabilities, capability_member, parse_problem
from tests.drafts.tensorrt_rtx.kernel import load
from tests.drafts.tensorrt_rtx.lower import lower

_NAMES = ("tensorrt_rtx", "tensorrt_rtx_bindings")
"""What the library's module is called, alone and as the bindings of a wheel."""


def find_library() -> Any:
    """The library's module.

    Raises:
        ImportError: If it is not installed.
    """
    for name in _NAMES:
        try:
            return importlib.import_module(name)
        except ImportError as error:
            reason = error
    raise reason


class TensorRtRtxPlugin:
    """Hooks of the toolchain `tensorrt_rtx`.

    Args:
        library: Gives the library's module; called where it is needed, in the worker.
    """

    def __init__(self, library: Callable[[], Any] = find_library) -> None:
        self._library = library

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """One target per device the library builds for, in this machine or in the one that is built for."""
        try:
            library = self._library()
        except Exception as error:
            return Unsupported(
                f"TensorRT for RTX cannot be imported ({error}); "
                "pip install tensorrt-rtx-cu13-libs tensorrt-rtx-cu13-bindings"
            )
        devices = [device for device in host.devices if device.kind == "cuda"]
        fitting = [device for device in devices if capability_member(library, device) is not None]
        if not fitting:
            known = ", ".join(capabilities(library))
            has = ", ".join(f"{device.model} has {device.compute_capability}" for device in devices) or "there is none"
            return Unsupported(f"it builds for devices of compute capability {known}; {has}")
        return [
            Target(
                toolchain="tensorrt_rtx",
                device=device.name,
                fingerprint=f"tensorrt_rtx {library.__version__}",
                joins=Joins.ANY,
            )
            for device in fitting
        ]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Every standard operator; which of them, `collage_query` asks the importer."""
        table.predicate("*", takes)

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """What the importer refuses. It stops at the first such node, so nodes are asked about alone."""
        library = self._library()
        return refused_nodes(model.model, lambda part: parse_problem(library, model_to_bytes(part)))

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """An engine."""
        return lower(self._library(), target, function, build)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The engine, read."""
        try:
            library = self._library()
        except Exception as error:
            return Unsupported(f"TensorRT for RTX cannot be imported ({error})")
        return load(library, artifact, run)


def takes(node: NodeContext) -> Supported | Unsupported:
    """Whether a node may be proposed at all."""
    if node.domain:
        return Unsupported(f"its importer is asked about standard operators only, not about {node.domain!r}")
    return Supported()


plugin = TensorRtRtxPlugin()
