"""An engine as a callable kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    Artifact,
    BoundCall,
    Buffer,
    RunContext,
    SizedKernel,
    Unsupported,
)
from collage_core.errors import CollageError, KernelError
from collage_tensorrt.lower import ENGINE
from collage_tensorrt.messages import log_of, trouble, why


def load(library: Any, artifact: Artifact, run: RunContext) -> SizedKernel | Unsupported:
    """Load an engine on the current device.

    Args:
        library: Module of the edition that built it.
        artifact: Artifact returned by `lower`.
        run: Run context that holds the stream.

    Returns:
        The kernel, with the size of its scratch memory now known; or why the engine cannot run here.

    Raises:
        DeviceError: If the device has too little memory, or is lost.
    """
    metadata: Mapping[str, Any] = artifact.metadata
    version = str(library.__version__)
    if metadata["version"] != version:
        return Unsupported(f"its engine is one of version {metadata['version']}, this is {version}")
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    log = log_of(library)
    runtime = library.Runtime(log)
    data = artifact.files[ENGINE]
    engine = runtime.deserialize_cuda_engine(data)
    if engine is None:
        if error := trouble(run.device, log):
            raise error
        return Unsupported(_why_unreadable(library, runtime, log, data))
    places = {name: engine.get_tensor_location(name) for name in _names(engine)}
    on_host = [name for name, place in places.items() if place != library.TensorLocation.DEVICE]
    if on_host:
        return Unsupported(f"its engine wants {', '.join(map(repr, on_host))} in the host's memory")
    lost = [name for name in metadata["outputs"] if name not in places]
    if lost:
        return Unsupported(f"its engine has no output {', '.join(map(repr, lost))}")
    return EngineKernel(library, log, runtime, engine, metadata["inputs"], metadata["outputs"], run)


class EngineKernel:
    """An engine on one stream.

    Args:
        library: The library.
        log: Logger of the library.
        runtime: Owns the engine.
        engine: The engine.
        inputs: Names of its inputs in the kernel function's order.
        outputs: The same for outputs.
        run: Device and stream to enqueue on.

    Attributes:
        workspace_bytes: Scratch memory the engine needs on this device; unknown until the engine is loaded there.
    """

    def __init__(
        self,
        library: Any,
        log: Any,
        runtime: Any,
        engine: Any,
        inputs: Sequence[str],
        outputs: Sequence[str],
        run: RunContext,
    ) -> None:
        self._library = library
        self._log = log
        self._runtime = runtime
        self._engine = engine
        self._inputs = inputs
        self._outputs = outputs
        self._run = run
        self._known = frozenset(_names(engine))
        self.workspace_bytes = int(engine.device_memory_size_v2)

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`. Scratch memory is the caller's, too: contexts of all engines of a plan share it."""
        context = self._engine.create_execution_context(self._library.ExecutionContextAllocationStrategy.USER_MANAGED)
        if context is None:
            raise self._error("the engine gives no context")
        if self.workspace_bytes:
            if workspace is None or workspace.spec.nbytes < self.workspace_bytes:
                raise KernelError(f"the engine needs {self.workspace_bytes} bytes of workspace")
            context.set_device_memory(workspace.pointer, self.workspace_bytes)
        for name, buffer in (*zip(self._inputs, inputs, strict=True), *zip(self._outputs, outputs, strict=True)):
            if name in self._known:
                self._bind_one(context, name, buffer, written=name in self._outputs)
        stream = self._run.stream

        def call() -> None:
            if not context.execute_async_v3(stream):
                raise self._error("the engine does not run")

        call.__dict__["keeps"] = (self, context, inputs, outputs, workspace)
        return call

    def _error(self, what: str) -> CollageError:
        reason = f"{what}: {why(self._log, 'the library does not say why')}"
        error = trouble(self._run.device, self._log) or KernelError(reason)
        self._log.errors.clear()  # the next failure has reasons of its own
        return error

    def _bind_one(self, context: Any, name: str, buffer: Buffer, *, written: bool) -> None:
        if buffer.pointer % DEVICE_ALIGNMENT_BYTES:
            # the documentation of setTensorAddress asks for this much
            raise KernelError(
                f"{name!r} is at {buffer.pointer:#x}; engines take places at multiples of {DEVICE_ALIGNMENT_BYTES}: "
                "copy it to one"
            )
        shape = buffer.spec.static_shape
        free = not written and -1 in tuple(self._engine.get_tensor_shape(name))
        if free and not context.set_input_shape(name, shape):
            raise KernelError(f"the engine does not take {name!r} of shape {list(shape)}")
        if not context.set_tensor_address(name, buffer.pointer):
            raise KernelError(f"the engine does not take {name!r} at {buffer.pointer:#x}")


def _names(engine: Any) -> list[str]:
    return [engine.get_tensor_name(place) for place in range(engine.num_io_tensors)]


def _why_unreadable(library: Any, runtime: Any, log: Any, data: bytes) -> str:
    """Return the library's own diagnosis and messages for an engine it cannot read."""
    said = why(log, "the engine cannot be read here, and the library does not say why")
    if not hasattr(runtime, "get_engine_validity"):  # TensorRT for RTX has it
        return said
    _, bits = runtime.get_engine_validity(data)
    members = library.EngineInvalidityDiagnostics.__members__
    found = [name.lower().replace("_", " ") for name, member in members.items() if int(member) & int(bits)]
    return f"{', '.join(found)}: {said}" if found else said
