"""Where the steps of a kernel find what they read and write, and a kernel as its steps in turn."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from collage_core.contract import DEVICE_ALIGNMENT_BYTES, BoundCall, Buffer
from collage_core.errors import KernelError


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor is.

    Attributes:
        kind: `"input"`, `"output"`, `"weight"` (as the model has it), `"made"` (a weight made when loading) or
            `"scratch"`.
        at: Number of the input or of the output; name of the weight; number or name of what is made; bytes from the
            start of the workspace.
    """

    kind: str
    at: int | str


class Placed(Protocol):
    """Memory of a device."""

    @property
    def pointer(self) -> int:
        """Address of the memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundPlaces:
    """The memory of one bound call.

    Attributes:
        inputs: In the order of the kernel function's inputs.
        outputs: Likewise.
        workspace: None if there is none.
        weights: On the device, by name.
        made: Weights made when loading, by what `Place.at` calls them.
    """

    inputs: Sequence[Buffer]
    outputs: Sequence[Buffer]
    workspace: Buffer | None
    weights: Mapping[str, Buffer]
    made: Mapping[int | str, Placed]

    @property
    def scratch(self) -> int:
        """Address of the workspace; 0 if there is none."""
        return 0 if self.workspace is None else self.workspace.pointer

    def check(self, workspace_bytes: int, why: str) -> None:
        """Refuse what steps cannot use.

        Args:
            workspace_bytes: Workspace that the steps need.
            why: Why addresses have to be multiples of `DEVICE_ALIGNMENT_BYTES`, which the reason continues.

        Raises:
            KernelError: If the workspace is missing, or an address is no such multiple.
        """
        if workspace_bytes and self.workspace is None:
            raise KernelError(f"its steps need {workspace_bytes} bytes of workspace")
        for buffer in (*self.inputs, *self.outputs, *self.weights.values()):
            if buffer.pointer % DEVICE_ALIGNMENT_BYTES:
                raise KernelError(
                    f"{buffer.spec.name!r} is at {buffer.pointer:#x}; {why} at multiples of "
                    f"{DEVICE_ALIGNMENT_BYTES}: copy it to one"
                )

    def address(self, place: Place) -> int:
        """Return the address of a tensor."""
        match place.kind:
            case "scratch":
                return self.scratch + int(place.at)
            case "weight":
                return self.weights[str(place.at)].pointer
            case "made":
                return self.made[place.at].pointer
        return (self.inputs if place.kind == "input" else self.outputs)[int(place.at)].pointer

    def call(self, steps: Iterable[Callable[[], object]]) -> BoundCall:
        """Make a call of steps in turn, which keeps the memory as long as it lives."""
        bound = tuple(steps)

        def call() -> None:
            for step in bound:
                step()

        call.__dict__["keeps"] = self
        return call
