"""Reading engines and running them on a fake device; see `emulated`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir

from collage.reference import evaluate
from collage_core.ir.io.model_io import model_from_bytes
from collage_testing.kit import stream_of
from collage_testing.kit.fake_hardware import FakeHardware

from .emulated_api import (
    NO_DRIVER,
    EngineInvalidityDiagnostics,
    ExecutionContextAllocationStrategy,
    ILogger,
    TensorLocation,
    tensor_of,
)

if TYPE_CHECKING:
    from .emulated import Library

WORKSPACE_BYTES = 4096
ALIGNMENT = 256


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
        return tensor_of(self.tensors[name], False).shape

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
    """Notes what it is told in `calls`; see `emulated`."""

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

    def _compute(self, device: FakeHardware) -> None:
        device.view(self._workspace, (WORKSPACE_BYTES,), np.uint8)[:] = 0x5A
        graph = self._engine.model.graph
        feeds = {}
        for value in graph.inputs:
            name = str(value.name)
            if name in self._addresses:
                feeds[name] = self._view(device, value, self._shapes[name]).copy()
            else:  # nobody reads it
                assert value.dtype is not None
                feeds[name] = np.zeros(value.shape.numpy() if value.shape else (), value.dtype.numpy())
        values = evaluate(self._engine.model, feeds).values
        for value in graph.outputs:
            result = values[str(value.name)]
            np.copyto(self._view(device, value, result.shape), result)

    def _view(self, device: FakeHardware, value: onnx_ir.Value, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        assert value.dtype is not None
        return device.view(self._addresses[str(value.name)], shape, value.dtype.numpy())
