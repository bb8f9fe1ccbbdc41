"""Memory that sessions of several sizes share, since only one of them runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import onnx_ir as ir

from collage.runtime.calling.lending import Array, Blocks
from collage.runtime.executable import Executable
from collage.runtime.places import Reserve, grown
from collage_core.contract import TensorSpec, ValueKind


class SharedMemory:
    """Arenas of the host, and places of inputs and outputs, each of the largest size so far.

    A size that needs more gets new ones. Sessions of other sizes keep those that they have.

    Attributes:
        lock: Held by the session that runs.
        reserve: The memory; executables take their arenas from it.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.reserve = Reserve()

    def places(self, executable: Executable) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return arrays for the inputs and for the outputs of an executable, as far as these are planned."""
        inputs, outputs = executable.inputs, dict.fromkeys(executable.outputs)
        return self._arrays("input", executable, inputs), self._arrays("output", executable, outputs)

    def _arrays(self, kind: str, executable: Executable, values: Iterable[ir.Value]) -> dict[str, Array]:
        found = {}
        for spec in map(executable.spec, values):
            if spec.kind is not ValueKind.PLANNED:
                continue
            memory = self.reserve.take(f"{kind} {spec.name}", spec.nbytes)
            found[spec.name] = memory.view(spec.numpy_dtype).reshape(spec.static_shape)
        return found


class SharedBlocks:
    """Blocks that a plan for a range of sizes lends its outputs in, each of the largest size so far."""

    def __init__(self) -> None:
        self._blocks: dict[str, Blocks] = {}

    def of(self, spec: TensorSpec) -> Blocks:
        """Return blocks for an output."""
        known = self._blocks.get(spec.name)
        if known is None:
            known = self._blocks[spec.name] = Blocks(spec.nbytes)
        elif known.nbytes < spec.nbytes:
            known = self._blocks[spec.name] = Blocks(grown(known.nbytes, spec.nbytes))
        return known

    @property
    def live_bytes(self) -> int:
        """Size of the blocks, lent and idle."""
        return sum(blocks.live_bytes for blocks in list(self._blocks.values()))
