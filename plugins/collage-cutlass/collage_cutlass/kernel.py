"""A program as a callable kernel: each call enqueues its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from collage_cutlass.library import Library, Placed
from collage_cutlass.problem import Gemm
from collage_cutlass.program import Program, Step


def load(library: Library, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Load an artifact; nothing is compiled, because the artifact contains the library.

    Args:
        library: The loaded library.
        artifact: Artifact returned by `lower`.
        run: Run context: device, stream and weights.

    Raises:
        DeviceError: If a weight does not fit into the device's memory.
        OSError: If the driver refuses the allocation.
    """
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    program = Program.from_json(artifact.metadata)
    device = int(run.device.partition(":")[2] or 0)
    try:
        weights = {name: run.weight(artifact.constants[name]) for name in sorted(program.weights)}
        made: dict[int | str, Placed] = {
            name: library.place(_turned(run.constants[artifact.constants[name]], extents), device, run.stream)
            for name, extents in program.made.items()
        }
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    return ProgramKernel(library, program, device, run.stream, weights, made)


def _turned(weight: np.ndarray[Any, Any], extents: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """Return a weight with its last two axes transposed in memory."""
    return np.ascontiguousarray(np.asarray(weight).reshape(extents).transpose(0, 2, 1))


class ProgramKernel:
    """A sequence of steps on one stream.

    Args:
        library: The library.
        program: Steps to enqueue.
        device: Number of the device.
        stream: Stream to enqueue on.
        weights: Weights on the device, by name.
        made: Weights derived when the kernel is loaded, by name.
    """

    def __init__(
        self,
        library: Library,
        program: Program,
        device: int,
        stream: int,
        weights: Mapping[str, Buffer],
        made: Mapping[int | str, Placed],
    ) -> None:
        self._library = library
        self._program = program
        self._where = (device, stream)
        self._weights = weights
        self._made = made

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        program, library = self._program, self._library
        at = BoundPlaces(inputs=inputs, outputs=outputs, workspace=workspace, weights=self._weights, made=self._made)
        at.check(program.scratch_bytes, "several elements are read at once, from places")

        def moved(step: Step) -> BoundCall:
            return library.move(step.move, at.address(step.given), at.address(step.result), *self._where)

        places = {name: at.address(place) for name, place in program.places.items()}
        if isinstance(program.problem, Gemm):
            middle = library.gemm(program.problem, program.chain, places, *self._where)
        else:
            middle = library.conv(program.problem, program.chain, places, *self._where)
        return at.call((*map(moved, program.before), middle, *map(moved, program.after)))
