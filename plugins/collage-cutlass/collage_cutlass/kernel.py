"""A program as a callable kernel: each call enqueues its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    Artifact,
    BoundCall,
    Buffer,
    Kernel,
    RunContext,
    Unsupported,
)
from collage_core.errors import KernelError
from collage_cutlass.library import Library, Placed
from collage_cutlass.problem import Gemm
from collage_cutlass.program import Place, Program, Step


def load(library: Library, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Nothing is compiled: the library in the artifact is all there is.

    Args:
        library: The loaded library.
        artifact: From `lower`.
        run: Where it will run.

    Raises:
        DeviceError: If a weight finds no place on the device.
        OSError: If the driver refuses it one.
    """
    if run.stream is None:
        return Unsupported("it enqueues on a stream, and none was given")
    program = Program.from_json(artifact.metadata)
    device = int(run.device.partition(":")[2] or 0)
    try:
        weights = {name: run.weight(artifact.constants[name]) for name in sorted(program.weights)}
        made = {
            name: library.place(_turned(run.constants[artifact.constants[name]], extents), device, run.stream)
            for name, extents in program.made.items()
        }
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    return ProgramKernel(library, program, device, run.stream, weights, made)


def _turned(weight: np.ndarray[Any, Any], extents: tuple[int, int, int]) -> np.ndarray[Any, Any]:
    """A weight with its last two axes exchanged, in memory too."""
    return np.ascontiguousarray(np.asarray(weight).reshape(extents).transpose(0, 2, 1))


class ProgramKernel:
    """Steps on one stream.

    Args:
        library: The library.
        program: The steps.
        device: Number of the device.
        stream: Where to enqueue.
        weights: On the device, by name.
        made: Weights made for it, by name.
    """

    def __init__(
        self,
        library: Library,
        program: Program,
        device: int,
        stream: int,
        weights: Mapping[str, Buffer],
        made: Mapping[str, Placed],
    ) -> None:
        self._library = library
        self._program = program
        self._where = (device, stream)
        self._weights = weights
        self._made = made

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        program, library = self._program, self._library
        if program.scratch_bytes and workspace is None:
            raise KernelError(f"its steps need {program.scratch_bytes} bytes of workspace")
        for buffer in (*inputs, *outputs, *self._weights.values()):
            if buffer.pointer % DEVICE_ALIGNMENT_BYTES:
                raise KernelError(
                    f"{buffer.spec.name!r} is at {buffer.pointer:#x}; several elements are read at once, from places "
                    f"at multiples of {DEVICE_ALIGNMENT_BYTES}: copy it to one"
                )
        scratch = 0 if workspace is None else workspace.pointer

        def address(place: Place) -> int:
            match place.kind:
                case "scratch":
                    return scratch + int(place.at)
                case "weight":
                    return self._weights[str(place.at)].pointer
                case "made":
                    return self._made[str(place.at)].pointer
            return (inputs if place.kind == "input" else outputs)[int(place.at)].pointer

        def moved(step: Step) -> BoundCall:
            return library.move(step.move, address(step.given), address(step.result), *self._where)

        places = {name: address(place) for name, place in program.places.items()}
        if isinstance(program.problem, Gemm):
            middle = library.gemm(program.problem, program.chain, places, *self._where)
        else:
            middle = library.conv(program.problem, program.chain, places, *self._where)
        steps = (*map(moved, program.before), middle, *map(moved, program.after))

        def call() -> None:
            for step in steps:
                step()

        call.__dict__["keeps"] = (inputs, outputs, workspace, self._weights, self._made)
        return call
