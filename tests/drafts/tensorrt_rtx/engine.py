"""Parsing and building with TensorRT for RTX, neither of which needs a GPU. The library is passed in."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from collage_core.contract import Device

LIBRARY = "tensorrt_rtx_cu13_libs"
"""Distribution of the library; `tensorrt_rtx_cu13_bindings` is its Python side."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """What an engine is built for.

    Attributes:
        compute_capability: Of the device, e.g. `"8.9"`.
        workspace_bytes: Most scratch memory of one layer.
        level: `builder_optimization_level`, 0 to 5.
    """

    compute_capability: str
    workspace_bytes: int
    level: int


class Log:
    """Keeps what the library complains about; made over its `ILogger`, whose method it overrides."""

    def __new__(cls, library: Any) -> Any:
        """A logger of the library with an attribute `errors`."""

        def log(self: Any, severity: Any, message: str) -> None:
            if severity in (library.ILogger.Severity.ERROR, library.ILogger.Severity.INTERNAL_ERROR):
                self.errors.append(" ".join(message.split()))

        def start(self: Any) -> None:
            library.ILogger.__init__(self)
            self.errors = []

        return type("CollageLog", (library.ILogger,), {"__init__": start, "log": log})()


def capability_member(library: Any, device: Device) -> Any:
    """The library's member for a device; None if it builds nothing for such."""
    return getattr(library.ComputeCapability, f"SM{device.compute_capability.replace('.', '')}", None)


def capabilities(library: Any) -> Sequence[str]:
    """Compute capabilities it builds for, as people write them."""
    names = [name for name in library.ComputeCapability.__members__ if name.startswith("SM")]
    return sorted((f"{name[2:-1]}.{name[-1]}" for name in names), key=lambda each: tuple(map(int, each.split("."))))


def parse_problem(library: Any, model: bytes) -> str | None:
    """Why a model cannot be parsed, by the library's own importer; None if it can."""
    log = Log(library)
    builder = library.Builder(log)
    _, problem = _parsed(library, log, builder, model)
    return problem


def build_engine(library: Any, model: bytes, settings: EngineSettings, device: Device) -> bytes | str:
    """An engine, or why there is none."""
    log = Log(library)
    builder = library.Builder(log)
    network, problem = _parsed(library, log, builder, model)
    if problem is not None:
        return problem
    config = builder.create_builder_config()
    config.builder_optimization_level = settings.level
    config.set_memory_pool_limit(library.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    config.num_compute_capabilities = 1
    config.set_compute_capability(capability_member(library, device), 0)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        return log.errors[-1] if log.errors else "no engine was built, and it does not say why"
    return bytes(plan)


def _parsed(library: Any, log: Any, builder: Any, model: bytes) -> tuple[Any, str | None]:
    """The network, and why it is incomplete."""
    # precision follows the ONNX types
    flags = 1 << int(library.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    parser = library.OnnxParser(network, log)
    if parser.parse(model):
        return network, None
    errors = [parser.get_error(place) for place in range(parser.num_errors)]
    return network, "; ".join(_told(error) for error in errors) or "it does not say why"


def _told(error: Any) -> str:
    where = f"{error.node_operator()}: " if error.node_operator() else ""
    return where + " ".join(error.desc().split())
