"""TensorRT as far as the plugin touches it, with engines that run on a fake device.

What the importer and the builder answer was seen with TensorRT for RTX 1.7.1.116 on a machine without a GPU: which
operators are refused and in which words, what becomes of types and of shapes that are read, that an engine is built for
another device, and that none can be read. What a device would answer is as the documentation of the API says, and
strict: addresses have to be aligned and set, scratch memory given, the first call of a context allocates. An engine is
its model: when the stream comes to it, ONNX's reference computes it on the memory its addresses name.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from collage_testing.kit import FakeDevice

from .emulated_api import (
    VERSION,
    ComputeCapability,
    DataType,
    EngineInvalidityDiagnostics,
    ErrorCode,
    ExecutionContextAllocationStrategy,
    ILogger,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    TensorLocation,
)
from .emulated_builder import Builder, Network, OnnxParser
from .emulated_engine import Context, RtxRuntime, Runtime


@dataclasses.dataclass
class Library:
    """The module, on a machine.

    Args:
        rtx: Whether it is TensorRT for RTX; the other edition tries kernels on the device.
        device: The device that is current; None on a machine without one.
        capability: Of that device.

    Attributes:
        builds: Settings of the engines built, in order.
        tried: Kernels timed while building.
        parses: How often the importer was asked.
        contexts: Execution contexts made, in order.
        refuses: What the builder says of every network; empty to build them.
        trouble: What reading and running engines ends with; empty if they do not.
    """

    rtx: bool = True
    device: FakeDevice | None = None
    capability: str = "8.9"
    version: str = VERSION
    builds: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    tried: list[str] = dataclasses.field(default_factory=list)
    parses: int = 0
    contexts: list[Context] = dataclasses.field(default_factory=list)
    refuses: str = ""
    trouble: str = ""

    def __post_init__(self) -> None:
        self.__version__ = self.version
        flags = ["TF32", *(["REQUIRE_USER_ALLOCATION"] if self.rtx else [])]
        self.BuilderFlag = enum.Enum("BuilderFlag", flags)  # type: ignore[misc]
        self.DataType, self.ErrorCode, self.ILogger = DataType, ErrorCode, ILogger
        self.ExecutionContextAllocationStrategy = ExecutionContextAllocationStrategy
        self.MemoryPoolType, self.TensorLocation = MemoryPoolType, TensorLocation
        self.NetworkDefinitionCreationFlag = NetworkDefinitionCreationFlag
        if self.rtx:
            self.ComputeCapability = ComputeCapability
            self.EngineInvalidityDiagnostics = EngineInvalidityDiagnostics

    def Builder(self, log: Any) -> Builder:  # noqa: N802  the library's name
        if not self.rtx and self.device is None:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Builder(self, log)

    def OnnxParser(self, network: Network, log: Any) -> OnnxParser:  # noqa: N802
        return OnnxParser(self, network)

    def Runtime(self, log: Any) -> Runtime | RtxRuntime:  # noqa: N802
        return RtxRuntime(self, log) if self.rtx else Runtime(self, log)
