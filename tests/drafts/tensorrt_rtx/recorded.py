"""TensorRT for RTX as recorded without a GPU: the part of its module that the draft touches.

What is answered was seen with 1.7.1.116 on a machine without a GPU: which operators the importer refuses and in which
words, that an engine is built for another device, and that none can be read. What a device would answer is as the
documentation says.
"""

from __future__ import annotations

import enum
import hashlib
from typing import Any

import onnx_ir

__version__ = "1.7.1.116"

REFUSED = {"Det": "false", "NonZero": "Assertion failed: creator: NonZero plugin creator was not found"}
NO_DRIVER = "CUDA driver version is insufficient for CUDA runtime version"
WORKSPACE_BYTES = 8192512
"""What the log of a build said of a region of three nodes; the engine says it only where it can be read."""


class ComputeCapability(enum.Enum):
    NONE = 0
    CURRENT = 1
    SM75 = 75
    SM80 = 80
    SM86 = 86
    SM89 = 89
    SM120 = 120
    SM121 = 121


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class MemoryPoolType(enum.Enum):
    WORKSPACE = 0


class ExecutionContextAllocationStrategy(enum.Enum):
    USER_MANAGED = 2


class ILogger:
    class Severity(enum.Enum):
        INTERNAL_ERROR = 0
        ERROR = 1

    def log(self, severity: Severity, message: str) -> None:
        raise NotImplementedError


class ParserError:
    def __init__(self, operator: str, text: str) -> None:
        self._operator, self._text = operator, text

    def node_operator(self) -> str:
        return self._operator

    def desc(self) -> str:
        return self._text


class Network:
    model = b""


class OnnxParser:
    def __init__(self, network: Network, logger: ILogger) -> None:
        self._network = network
        self._errors: list[ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, place: int) -> ParserError:
        return self._errors[place]

    def parse(self, model: bytes) -> bool:
        from collage_core.ir.model_io import model_from_bytes

        parsed: onnx_ir.Model = model_from_bytes(model)
        refused = [node.op_type for node in parsed.graph if node.op_type in REFUSED]
        self._errors = [ParserError(each, REFUSED[each]) for each in refused[:1]]  # it stops at the first
        self._network.model = model
        return not refused


class BuilderConfig:
    def __init__(self) -> None:
        self.builder_optimization_level = 3
        self.num_compute_capabilities = 0
        self.limits: dict[MemoryPoolType, int] = {}
        self.capabilities: dict[int, ComputeCapability] = {}

    def set_memory_pool_limit(self, pool: MemoryPoolType, size: int) -> None:
        self.limits[pool] = size

    def set_compute_capability(self, capability: ComputeCapability, index: int) -> bool:
        self.capabilities[index] = capability
        return True


class Builder:
    builds = 0

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def create_network(self, flags: int) -> Network:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return Network()

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig()

    def build_serialized_network(self, network: Network, config: BuilderConfig) -> bytes | None:
        Builder.builds += 1
        if config.num_compute_capabilities != 1:
            self._logger.log(ILogger.Severity.ERROR, NO_DRIVER)  # without one, it asks the device of this machine
            return None
        return f"{config.capabilities[0].name} {hashlib.sha256(network.model).hexdigest()}".encode()


class Context:
    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def set_device_memory(self, pointer: int, size: int) -> None:
        self.calls.append(("memory", pointer, size))

    def set_tensor_address(self, name: str, pointer: int) -> bool:
        self.calls.append((name, pointer))
        return True

    def execute_async_v3(self, stream: int) -> bool:
        self.calls.append(("execute", stream))
        return True


class Engine:
    device_memory_size_v2 = WORKSPACE_BYTES

    def __init__(self) -> None:
        self.contexts: list[Context] = []

    def create_execution_context(self, strategy: ExecutionContextAllocationStrategy) -> Context:
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        self.contexts.append(Context())
        return self.contexts[-1]


class Runtime:
    has_device = False
    engines: list[Engine] = []  # noqa: RUF012  what tests look at

    def __init__(self, logger: ILogger) -> None:
        self._logger = logger

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        if not Runtime.has_device:
            self._logger.log(ILogger.Severity.ERROR, NO_DRIVER)
            return None
        Runtime.engines.append(Engine())
        return Runtime.engines[-1]
