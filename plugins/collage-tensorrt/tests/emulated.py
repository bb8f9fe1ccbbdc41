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
import hashlib
import json
from typing import Any

import numpy as np
import onnx_ir

from collage_core.ir.model_io import model_from_bytes
from collage_core.reference import evaluate
from collage_core.testing import FakeDevice, stream_of

VERSION = "1.7.1.116"
WORKSPACE_BYTES = 4096
ALIGNMENT = 256

NO_DRIVER = (
    "IRuntime::deserializeCudaEngine: Error Code 1: Cuda Runtime (In ScopedCudaStream at "
    "/_src/common/dispatch/cudaResources.cpp:25 (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
    "version))"
)
NO_PROFILE = (
    "IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error (Network has dynamic or shape inputs, but no "
    "optimization profile has been defined. In validate at /_src/optimizer/api/network.cpp:4023)"
)
NO_PLUGIN = (
    "Assertion failed: creator && getPluginCreatorVersion(creator) == CreatorVersion::kV3ONE: {0} plugin creator "
    "version 1 was not found in plugin registry."
)
REFUSED = {"Det": "false", "NonZero": NO_PLUGIN.format("NonZero")}
SHAPES = {"Reshape": 1, "Expand": 1, "Tile": 1}
"""Position of the input that is read on the host, by operator."""

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


DataType = enum.Enum("DataType", sorted(set(TYPES.values())))
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


@dataclasses.dataclass
class Tensor:
    name: str
    dtype: Any
    shape: tuple[int, ...]
    is_shape_tensor: bool = False


class Network:
    def __init__(self) -> None:
        self.data = b""
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []

    @property
    def num_inputs(self) -> int:
        return len(self.inputs)

    @property
    def num_outputs(self) -> int:
        return len(self.outputs)

    def get_input(self, place: int) -> Tensor:
        return self.inputs[place]

    def get_output(self, place: int) -> Tensor:
        return self.outputs[place]


@dataclasses.dataclass
class ParserError:
    operator: str
    text: str

    def node_operator(self) -> str:
        return self.operator

    def desc(self) -> str:
        return self.text

    def code(self) -> Any:
        return ErrorCode.UNSUPPORTED_NODE


class OnnxParser:
    def __init__(self, library: Library, network: Network) -> None:
        self._library, self._network = library, network
        self._errors: list[ParserError] = []

    @property
    def num_errors(self) -> int:
        return len(self._errors)

    def get_error(self, place: int) -> ParserError:
        return self._errors[place]

    def parse(self, data: bytes) -> bool:
        self._library.parses += 1
        graph = model_from_bytes(data).graph
        # checks of all nodes come first; a plugin that is missing is found when the nodes are made, and ends that
        for words in ("false", ""):
            found = [ParserError(n.op_type, REFUSED[n.op_type]) for n in graph if n.op_type in REFUSED]
            self._errors = [each for each in found if (each.text == "false") == (words == "false")]
            if self._errors:
                del self._errors[len(self._errors) if words else 1 :]
                return False
        on_host = {n.inputs[SHAPES[n.op_type]] for n in graph if n.op_type in SHAPES}
        self._network.data = data
        self._network.inputs = [_tensor(value, value in on_host) for value in graph.inputs]
        self._network.outputs = [_tensor(value, False) for value in graph.outputs]
        return True


def _tensor(value: onnx_ir.Value, on_host: bool) -> Tensor:
    assert value.dtype is not None
    assert value.shape is not None
    shape = tuple(extent if isinstance(extent, int) else -1 for extent in value.shape)
    return Tensor(str(value.name), DataType[TYPES[value.dtype]], shape, on_host)


class Profile:
    def __init__(self) -> None:
        self.shapes: dict[str, Any] = {}

    def set_shape(self, name: str, least: Any, best: Any, most: Any) -> None:
        self.shapes[name] = [list(least), list(best), list(most)]


class TimingCache:
    def __init__(self, data: bytes) -> None:
        self.fits = not data or data.startswith(b"[")
        self.known: set[str] = set(json.loads(data)) if data and self.fits else set()

    def serialize(self) -> bytes:
        return json.dumps(sorted(self.known)).encode()

    def combine(self, other: TimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.known |= other.known
        return other.fits


class BuilderConfig:
    def __init__(self, library: Library) -> None:
        self._library = library
        self.builder_optimization_level = 3
        self.num_compute_capabilities = 0
        self.capability: Any = None
        self.workspace_bytes = -1
        self.flags = {"TF32"}
        self.profiles: list[Profile] = []
        self.cache: TimingCache | None = None

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        assert pool is MemoryPoolType.WORKSPACE
        self.workspace_bytes = size

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag.name)

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag.name)

    def set_compute_capability(self, capability: ComputeCapability, index: int) -> bool:
        assert self._library.rtx
        assert index < self.num_compute_capabilities
        self.capability = capability
        return True

    def add_optimization_profile(self, profile: Profile) -> int:
        self.profiles.append(profile)
        return len(self.profiles) - 1

    def create_timing_cache(self, data: bytes) -> TimingCache:
        assert not self._library.rtx, "deprecated in TensorRT for RTX 1.2"
        return TimingCache(data)

    def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
        assert not ignore_mismatch
        self.cache = cache if cache.fits else self.cache
        return cache.fits


class Builder:
    def __init__(self, library: Library, log: Any) -> None:
        self._library, self._log = library, log

    def create_network(self, flags: int) -> Network:
        assert flags == 1 << int(NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        return Network()

    def create_builder_config(self) -> BuilderConfig:
        return BuilderConfig(self._library)

    def create_optimization_profile(self) -> Profile:
        return Profile()

    def build_serialized_network(self, network: Network, config: BuilderConfig) -> bytes | None:
        library = self._library
        free = [each.name for each in network.inputs if -1 in each.shape]
        shapes = config.profiles[0].shapes if config.profiles else {}
        if problem := library.refuses or ("" if set(free) <= set(shapes) else NO_PROFILE):
            self._log.log(ILogger.Severity.ERROR, problem)
            return None
        if library.rtx and config.num_compute_capabilities != 1:
            self._log.log(ILogger.Severity.ERROR, NO_DRIVER)  # without one, it asks the device of this machine
            return None
        if not library.rtx:
            self._try_kernels(network, config)
        settings = {
            "level": config.builder_optimization_level,
            "workspace_bytes": config.workspace_bytes,
            "flags": sorted(config.flags),
            "capability": config.capability.name if library.rtx else f"SM{library.capability.replace('.', '')}",
            "profile": shapes,
        }
        library.builds.append(settings)
        header = {"version": library.version, **settings, "hash": hashlib.sha256(network.data).hexdigest()}
        return json.dumps(header).encode() + b"\0" + network.data

    def _try_kernels(self, network: Network, config: BuilderConfig) -> None:
        known = set() if config.cache is None else config.cache.known
        for node in model_from_bytes(network.data).graph:
            kernel = f"{node.op_type} {[str(value.shape) for value in node.outputs]}"
            if kernel not in known:
                self._library.tried.append(kernel)
                known.add(kernel)


class Runtime:
    def __init__(self, library: Library, log: Any) -> None:
        self._library, self._log = library, log

    def deserialize_cuda_engine(self, plan: bytes) -> Engine | None:
        library = self._library
        if library.device is None:
            self._log.log(ILogger.Severity.VERBOSE, "Skipping the engine compute capability check")
            self._log.log(ILogger.Severity.ERROR, NO_DRIVER)
            return None
        header, _, data = plan.partition(b"\0")
        if library.trouble or not data:
            self._log.log(ILogger.Severity.ERROR, library.trouble or "the plan cannot be read")
            return None
        return Engine(library, self._log, json.loads(header), data)


class RtxRuntime(Runtime):
    def get_engine_validity(self, plan: bytes) -> tuple[Any, int]:
        return None, 0 if b"\0" in plan else int(EngineInvalidityDiagnostics.MALFORMED_ENGINE)


class Engine:
    device_memory_size_v2 = WORKSPACE_BYTES
    on_host: frozenset[str] = frozenset()

    def __init__(self, library: Library, log: Any, header: dict[str, Any], data: bytes) -> None:
        self.library, self.log, self.header = library, log, header
        self.model = model_from_bytes(data)
        graph = self.model.graph
        read = {value for node in graph for value in node.inputs} | set(graph.outputs)
        # an input that nobody reads is not in the engine
        self.tensors = {str(each.name): each for each in (*graph.inputs, *graph.outputs) if each in read}

    @property
    def num_io_tensors(self) -> int:
        return len(self.tensors)

    def get_tensor_name(self, place: int) -> str:
        return list(self.tensors)[place]

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return _tensor(self.tensors[name], False).shape

    def get_tensor_location(self, name: str) -> Any:
        return TensorLocation.HOST if name in self.on_host else TensorLocation.DEVICE

    def create_execution_context(self, strategy: Any) -> Context | None:
        assert strategy is ExecutionContextAllocationStrategy.USER_MANAGED
        if self.library.trouble:
            self.log.log(ILogger.Severity.ERROR, self.library.trouble)
            return None
        self.library.contexts.append(Context(self))
        return self.library.contexts[-1]


class Context:
    """Notes what it is told in `calls`; see the module."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.calls: list[tuple[Any, ...]] = []
        self._addresses: dict[str, int] = {}
        self._shapes = {name: engine.get_tensor_shape(name) for name in engine.tensors}
        self._workspace = 0
        self._warm = False

    def set_device_memory(self, pointer: int, size: int) -> None:
        assert pointer % ALIGNMENT == 0
        assert size >= WORKSPACE_BYTES
        self.calls.append(("memory", pointer, size))
        self._workspace = pointer

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.calls.append(("shape", name, tuple(shape)))
        _, _, most = self._engine.header["profile"][name]
        self._shapes[name] = tuple(shape)
        return list(shape) == most

    def set_tensor_address(self, name: str, pointer: int) -> bool:
        self.calls.append((name, pointer))
        self._addresses[name] = pointer
        return name in self._engine.tensors and pointer % ALIGNMENT == 0 and pointer != 0

    def execute_async_v3(self, stream: int) -> bool:
        self.calls.append(("execute", stream))
        if self._engine.library.trouble:
            self._engine.log.log(ILogger.Severity.ERROR, self._engine.library.trouble)
            return False
        ready = set(self._addresses) == set(self._engine.tensors) and self._workspace != 0
        queue = stream_of(stream)
        if not self._warm:
            self._code = queue.allocate(1)  # kernels are loaded when they first run, which no graph can capture
            self._warm = True
        if ready:
            queue.enqueue("engine", lambda: self._compute(queue.device))
        return ready

    def _compute(self, device: FakeDevice) -> None:
        device.view(self._workspace, (WORKSPACE_BYTES,), np.uint8)[:] = 0x5A
        graph = self._engine.model.graph
        feeds = {}
        for value in graph.inputs:
            name = str(value.name)
            if name in self._addresses:
                feeds[name] = self._view(device, value, self._shapes[name]).copy()
            else:  # nobody reads it
                assert value.dtype is not None
                feeds[name] = np.zeros([int(extent) for extent in value.shape or ()], value.dtype.numpy())
        values = evaluate(self._engine.model, feeds).values
        for value in graph.outputs:
            result = values[str(value.name)]
            np.copyto(self._view(device, value, result.shape), result)

    def _view(self, device: FakeDevice, value: onnx_ir.Value, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        assert value.dtype is not None
        return device.view(self._addresses[str(value.name)], shape, value.dtype.numpy())
