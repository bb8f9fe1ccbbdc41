"""An engine as a callable kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from collage_core.contract import Artifact, BoundCall, Buffer, RunContext, SizedKernel, Unsupported
from collage_core.errors import KernelError
from tests.drafts.tensorrt_rtx.engine import Log
from tests.drafts.tensorrt_rtx.lower import ENGINE


def load(library: Any, artifact: Artifact, run: RunContext) -> SizedKernel | Unsupported:
    """Reads the engine; on this device it is compiled for good when it first runs."""
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    log = Log(library)
    runtime = library.Runtime(log)
    engine = runtime.deserialize_cuda_engine(artifact.files[ENGINE])
    if engine is None:
        return Unsupported(log.errors[-1] if log.errors else "the engine cannot be read here")
    metadata: Mapping[str, Any] = artifact.metadata
    return EngineKernel(library, runtime, engine, metadata["inputs"], metadata["outputs"], run.stream)


class EngineKernel:
    """An engine on one stream.

    Args:
        library: The library.
        runtime: Owns the engine.
        engine: The engine.
        inputs: Names of its inputs in the kernel function's order.
        outputs: The same of outputs.
        stream: Where to enqueue.

    Attributes:
        workspace_bytes: What the engine needs on this device; nobody knows before it is read there.
    """

    def __init__(
        self, library: Any, runtime: Any, engine: Any, inputs: Sequence[str], outputs: Sequence[str], stream: int
    ) -> None:
        self._library = library
        self._runtime = runtime
        self._engine = engine
        self._inputs = inputs
        self._outputs = outputs
        self._stream = stream
        self.workspace_bytes = int(engine.device_memory_size_v2)

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        context = self._engine.create_execution_context(self._library.ExecutionContextAllocationStrategy.USER_MANAGED)
        if workspace is not None:
            context.set_device_memory(workspace.pointer, self.workspace_bytes)
        elif self.workspace_bytes:
            raise KernelError(f"the engine needs {self.workspace_bytes} bytes of workspace")
        for name, buffer in (*zip(self._inputs, inputs, strict=True), *zip(self._outputs, outputs, strict=True)):
            if not context.set_tensor_address(name, buffer.pointer):
                raise KernelError(f"the engine does not take {name!r} at {buffer.pointer:#x}")
        call = functools.partial(context.execute_async_v3, self._stream)
        call.__dict__["keeps"] = (self, context, inputs, outputs, workspace)
        return call
