"""Memory that sessions of several sizes share, since only one of them runs at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import onnx_ir as ir

from collage.runtime.calling.lending import Array, Blocks
from collage.runtime.executable import Executable
from collage.runtime.places import Reserve
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
    """Blocks that a plan for a range of sizes lends its outputs in.

    Sizes between two powers of two share blocks of the larger one, so a result that is held takes less than twice its
    size. Idle blocks of all sizes of an output together take less than eight times the largest one.
    """

    def __init__(self) -> None:
        self._blocks: dict[tuple[str, int], Blocks] = {}

    def of(self, spec: TensorSpec) -> Blocks:
        """Return blocks for an output, which is not empty."""
        nbytes = 1 << (spec.nbytes - 1).bit_length()
        return self._blocks.setdefault((spec.name, nbytes), Blocks(nbytes))

    @property
    def live_bytes(self) -> int:
        """Size of the blocks, lent and idle."""
        return sum(blocks.live_bytes for blocks in list(self._blocks.values()))
