"""A product as a callable kernel: one call of the library, which enqueues."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    Obstacle,
    RunContext,
    Unsupported,
)
from collage_core.errors import KernelError
from collage_cublas.describing import Described
from collage_cublas.library import Library
from collage_cublas.loading import spelt
from collage_cublas.lower import ALGORITHM
from collage_cublas.product import Product


def load(library: Library, handle: Callable[[], int], artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Load a product with the algorithm stored in the artifact; no heuristic is queried.

    NVIDIA's documentation of `cublasLtMatmulAlgo_t` promises that an algorithm can be stored and used again
    with the same version of the library. Under another version this refuses, and core has the function lowered
    again, which queries the heuristic of that version.

    Raises:
        CublasError: If the library does not start on the device.
    """
    metadata: Mapping[str, Any] = artifact.metadata
    if metadata["version"] != library.version():
        made, here = spelt(metadata["version"]), spelt(library.version())
        reason = f"its algorithm is one of cuBLASLt {made}, which keeps it for no other version; this is {here}"
        return Unsupported(reason, Obstacle.LIBRARY_VERSION)
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    try:
        weights = {name: run.weight(content) for name, content in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    return ProductKernel(library, handle(), run.stream, artifact, weights)


class ProductKernel:
    """One product on one stream.

    Args:
        library: The library.
        handle: Handle of the library on the device.
        stream: Stream to enqueue on.
        artifact: Artifact made by `lower`.
        weights: Weights on the device, by name.
    """

    def __init__(
        self, library: Library, handle: int, stream: int, artifact: Artifact, weights: Mapping[str, Buffer]
    ) -> None:
        metadata: Mapping[str, Any] = artifact.metadata
        self._library = library
        self._handle = handle
        self._stream = stream
        self._product = Product.from_json(metadata["product"])
        self._operands: Mapping[str, int | str] = metadata["operands"]
        self._algorithm = artifact.files[ALGORITHM]
        self._casts: Sequence[tuple[int, int, int]] = metadata["casts"]
        self._algorithm_bytes = int(metadata["algorithm_workspace_bytes"])
        self._workspace_bytes = artifact.workspace_bytes
        self._weights = weights

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        if self._workspace_bytes and workspace is None:
            raise KernelError(f"the product needs {self._workspace_bytes} bytes of workspace")
        places = {
            name: self._weights[each] if isinstance(each, str) else inputs[each]
            for name, each in self._operands.items()
        }
        for name, buffer in {**places, "result": outputs[0]}.items():
            if buffer.pointer % DEVICE_ALIGNMENT_BYTES:
                raise KernelError(
                    f"{name} {buffer.spec.name!r} is at {buffer.pointer:#x}; the algorithm was chosen for places at "
                    f"multiples of {DEVICE_ALIGNMENT_BYTES}: copy it to one"
                )
        start = 0 if workspace is None else workspace.pointer
        rounded = {position: start + offset for position, offset, _ in self._casts}
        pointers = {name: buffer.pointer for name, buffer in places.items()}
        pointers |= {name: rounded[at] for name in "ab" if (at := self._operands[name]) in rounded}
        first, second = ("b", "a") if self._product.b_first else ("a", "b")
        described = Described(self._library, self._product, pointers.get("bias", DEVICE_ALIGNMENT_BYTES))
        matmul = described.matmul(
            first=pointers[first],
            second=pointers[second],
            residual=pointers.get("residual", 0),
            result=outputs[0].pointer,
            algorithm=self._algorithm,
            workspace=start if self._algorithm_bytes else 0,
            workspace_bytes=self._algorithm_bytes,
            stream=self._stream,
        )
        call = self._library.bound(self._handle, matmul)
        if self._casts:
            call = self._after_casts(call, inputs, rounded)
        weakref.finalize(call, described.close).atexit = False  # the library may be gone by then
        call.__dict__["keeps"] = (inputs, outputs, workspace, self._weights)
        return call

    def _after_casts(self, product: BoundCall, inputs: Sequence[Buffer], rounded: Mapping[int, int]) -> BoundCall:
        """Return a call that rounds the product's inputs and then computes it, on the same stream."""
        calls = [
            self._library.rounding(
                self._handle,
                self._product.factors,
                source=inputs[position].pointer,
                target=rounded[position],
                count=elements,
                stream=self._stream,
            )
            for position, _, elements in self._casts
        ]

        def call() -> None:
            for cast in calls:
                cast()
            product()

        return call
