"""Names and values of TensorRT's API, as the plugin touches them; see `emulated`."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import onnx_ir

VERSION = "1.7.1.116"

NO_DRIVER = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (In ScopedCudaStream at "
    "/_src/common/dispatch/cudaResources.cpp:25 (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
    "version))"
)

TYPES = {
    onnx_ir.DataType.FLOAT: "FLOAT",
    onnx_ir.DataType.DOUBLE: "FLOAT",  # says nothing about it
    onnx_ir.DataType.FLOAT16: "HALF",
    onnx_ir.DataType.BFLOAT16: "BF16",
    onnx_ir.DataType.INT8: "INT8",
    onnx_ir.DataType.UINT8: "UINT8",
    onnx_ir.DataType.INT32: "INT32",
    onnx_ir.DataType.INT64: "INT64",
    onnx_ir.DataType.BOOL: "BOOL",
}


class ComputeCapability(enum.Enum):
    NONE = 0
    CURRENT = 1
    SM75 = 75
    SM80 = 80
    SM86 = 86
    SM89 = 89
    SM120 = 120
    SM121 = 121


class EngineInvalidityDiagnostics(enum.IntEnum):
    VERSION_MISMATCH = 1
    UNSUPPORTED_CC = 2
    MALFORMED_ENGINE = 32


DataType = enum.Enum("DataType", sorted(set(TYPES.values())))  # type: ignore[misc]  # members as the plugin asks
ErrorCode = enum.Enum("ErrorCode", ("SUCCESS", "UNSUPPORTED_NODE"))
ExecutionContextAllocationStrategy = enum.Enum("ExecutionContextAllocationStrategy", ("STATIC", "USER_MANAGED"))
MemoryPoolType = enum.Enum("MemoryPoolType", ("WORKSPACE",))
NetworkDefinitionCreationFlag = enum.IntEnum("NetworkDefinitionCreationFlag", ("STRONGLY_TYPED",))
TensorLocation = enum.Enum("TensorLocation", ("DEVICE", "HOST"))


class ILogger:
    Severity = enum.Enum("Severity", ("INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE"))

    def log(self, severity: Any, message: str) -> None:
        raise NotImplementedError


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: Any
    shape: tuple[int, ...]
    is_shape_tensor: bool = False


def tensor_of(value: onnx_ir.Value, on_host: bool) -> Tensor:
    assert value.dtype is not None
    assert value.shape is not None
    shape = tuple(extent if isinstance(extent, int) else -1 for extent in value.shape)
    return Tensor(str(value.name), DataType[TYPES[value.dtype]], shape, on_host)
