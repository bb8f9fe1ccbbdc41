"""Bind an executable to memory that callers own, again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collage.runtime.bound_run import BoundRun
from collage.runtime.calling.lending import Array, array_at
from collage.runtime.executable import Executable
from collage_core.contract import Buffer

KEPT_RUNS: Final = 16
"""Bound runs that are kept: one takes about 1 KiB, and some hundred microseconds to bind."""


class Rebinding:
    """Bound runs of an executable, by the addresses that they read and write.

    They do not keep the memory at these addresses alive, so a kept run may refer to memory that is gone. It runs only
    when its addresses are asked for again, and then they are those of memory that is there.

    Inputs and outputs at no given address are in the buffers of the default run, which all runs share.

    Args:
        executable: The executable; all kernels on the CPU.
        default: A run of it, bound to memory of its own.
    """

    def __init__(self, executable: Executable, default: BoundRun) -> None:
        self._executable = executable
        self._default = default
        self._kept: dict[tuple[tuple[str, int], ...], BoundRun] = {}

    def at(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> BoundRun:
        """Return the run that reads and writes these addresses; not thread-safe.

        Args:
            inputs: Addresses of inputs by name: of C-contiguous arrays of the exact dtype and shape.
            outputs: Addresses of outputs likewise.

        Raises:
            KernelError: If a kernel refuses a buffer.
        """
        if not inputs and not outputs:
            return self._default
        key = (*inputs.items(), *outputs.items())
        run = self._kept.pop(key, None)
        if run is None:
            own = self._default
            run = self._executable.bind(_placed(own.input_buffers, inputs), _placed(own.output_buffers, outputs))
            if len(self._kept) >= KEPT_RUNS:
                del self._kept[next(iter(self._kept))]  # the one not used for longest
        self._kept[key] = run
        return run


def _placed(own: Mapping[str, Buffer], addresses: Mapping[str, int]) -> dict[str, Array | Buffer]:
    return {
        name: array_at(addresses[name], buffer.spec) if name in addresses else buffer for name, buffer in own.items()
    }
