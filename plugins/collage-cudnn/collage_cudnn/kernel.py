"""A program as a callable kernel: each call enqueues its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    RunContext,
    Unsupported,
)
from collage_cuda.places import BoundPlaces
from collage_cudnn.library import Library, Placed
from collage_cudnn.lower import plan_file
from collage_cudnn.program import Copy, Program


def load(library: Library, handle: int, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Load an artifact; nothing is built, because a serialised plan is valid for its version and device.

    Args:
        library: The cuDNN library.
        handle: Handle on the run's device and stream.
        artifact: Artifact returned by `lower`.
        run: Run context: device, stream and weights.

    Raises:
        CudnnError: If the driver fails.
        DeviceError: If a weight does not fit into the device's memory, or the device is lost.
    """
    try:
        weights = {name: run.weight(content) for name, content in artifact.constants.items()}
        arrays = {name: np.asarray(run.constants[content]) for name, content in artifact.constants.items()}
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    program = Program.from_json(artifact.metadata)
    made = [library.place(weight.array(arrays), handle) for weight in program.made]
    return ProgramKernel(library, handle, artifact, program, weights, made)


class ProgramKernel:
    """A sequence of steps on one stream.

    Args:
        library: The library.
        handle: Handle of the library, bound to the stream.
        artifact: Artifact with the plans.
        program: Steps to enqueue.
        weights: Weights on the device, by name.
        made: Weights derived when the kernel is loaded.
    """

    def __init__(
        self,
        library: Library,
        handle: int,
        artifact: Artifact,
        program: Program,
        weights: Mapping[str, Buffer],
        made: Sequence[Placed],
    ) -> None:
        self._library = library
        self._handle = handle
        self._artifact = artifact
        self._program = program
        self._weights = weights
        self._made = made

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        places = BoundPlaces(
            inputs=inputs,
            outputs=outputs,
            workspace=workspace,
            weights=self._weights,
            made=dict(enumerate(self._made)),
        )
        places.check(self._artifact.workspace_bytes, "plans are made for places")
        own = places.scratch + self._program.scratch_bytes
        return places.call(
            self._library.converted(
                step.conversion, self._handle, places.address(step.source), places.address(step.destination)
            )
            if isinstance(step, Copy)
            else self._library.executed(
                self._artifact.files[plan_file(step.graph)],
                self._handle,
                {number: places.address(place) for number, place in enumerate(step.places, 1)},
                own,
            )
            for step in self._program.steps
        )
