"""Reading models and building engines: the importer and the builder; see `emulated`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

from collage_core.ir.io.model_io import model_from_bytes

from .emulated_api import (
    NO_DRIVER,
    ComputeCapability,
    ErrorCode,
    ILogger,
    MemoryPoolType,
    NetworkDefinitionCreationFlag,
    Tensor,
    tensor_of,
)

if TYPE_CHECKING:
    from .emulated import Library

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
        self._network.inputs = [tensor_of(value, value in on_host) for value in graph.inputs]
        self._network.outputs = [tensor_of(value, False) for value in graph.outputs]
        return True


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
