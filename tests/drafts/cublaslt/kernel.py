"""A product as a callable kernel: one call of the library, which enqueues."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Unsupported
from collage_core.errors import KernelError
from tests.drafts.cublaslt.library import Library
from tests.drafts.cublaslt.problem import Problem


def load(library: Library, handle: int, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Nothing is searched for: the algorithm's bytes are good for the version they came from."""
    metadata: Mapping[str, Any] = artifact.metadata
    if metadata["version"] != library.version():
        return Unsupported(f"its algorithm is one of cuBLASLt {metadata['version']}, this is {library.version()}")
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    try:
        weights = {name: run.weight(content) for name, content in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    return ProductKernel(library, handle, run.stream, artifact, weights)


class ProductKernel:
    """One product on one stream.

    Args:
        library: The library.
        handle: Of the library on the device.
        stream: Where to enqueue.
        artifact: From `lower`.
        weights: On the device, by name.
    """

    def __init__(
        self, library: Library, handle: int, stream: int, artifact: Artifact, weights: Mapping[str, Buffer]
    ) -> None:
        metadata: Mapping[str, Any] = artifact.metadata
        self._library = library
        self._handle = handle
        self._stream = stream
        self._problem = Problem.from_json(metadata["problem"])
        self._operands: Mapping[str, int | str] = metadata["operands"]
        self._algorithm = artifact.files["algorithm.bin"]
        self._workspace_bytes = artifact.workspace_bytes
        self._weights = weights

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if self._workspace_bytes and workspace is None:
            raise KernelError(f"the algorithm needs {self._workspace_bytes} bytes of workspace")
        places = {
            name: self._weights[each] if isinstance(each, str) else inputs[each]
            for name, each in self._operands.items()
        }
        pointers = {"bias": places["bias"].pointer} if "bias" in places else {}
        matmul = self._problem.described(
            self._library,
            a=places["b"].pointer,
            b=places["a"].pointer,
            d=outputs[0].pointer,
            algorithm=self._algorithm,
            workspace=0 if workspace is None else workspace.pointer,
            workspace_bytes=self._workspace_bytes,
            stream=self._stream,
            **pointers,
        )
        call = functools.partial(self._library.enqueue, self._handle, matmul)
        call.__dict__["keeps"] = (inputs, outputs, workspace, self._weights)
        return call
