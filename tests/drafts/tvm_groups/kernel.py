"""A compiled group as a callable kernel."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collage_core.contract import Artifact, BoundCall, Buffer, Kernel, RunContext, Unsupported
from collage_core.errors import KernelError
from tests.drafts.tvm_groups.compiler import SYMBOL
from tests.drafts.tvm_groups.lower import LIBRARY
from tests.drafts.tvm_groups.realigned import Realigned, aligned


def load(artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Loads the library; nothing is compiled.

    Args:
        artifact: From `lower`.
        run: Threads, weights, and a folder: TVM loads from files only.
    """
    try:
        import tvm
    except Exception as error:
        return Unsupported(f"tvm cannot be imported ({error}); pip install apache-tvm")
    names: Any = artifact.metadata["constants"]
    try:
        weights = [aligned(run.weight(artifact.constants[name])) for name in names]
    except KeyError as error:
        return Unsupported(f"the constant {error} was not supplied")
    with tempfile.TemporaryDirectory(dir=run.scratch) as folder:  # a loaded library needs its file no more
        path = Path(folder) / LIBRARY
        path.write_bytes(artifact.files[LIBRARY])
        try:
            function = tvm.runtime.load_module(str(path))[SYMBOL]
        except Exception as error:
            return Unsupported(" ".join(str(error).split()))
    if artifact.metadata["chunks"] != 1:
        # of the process, not of the kernel: kernels of one package are measured and run with one number of threads
        tvm.get_global_func("runtime.config_threadpool")(1, run.threads)
    return GroupKernel(function, weights)


class GroupKernel:
    """A compiled function, which is reentrant: it has no state.

    Args:
        function: Takes inputs, weights and outputs.
        weights: The weights.
    """

    reentrant = True

    def __init__(self, function: Any, weights: Sequence[Buffer]) -> None:
        self._function = function
        self._weights = weights

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        """See `Kernel.bind`."""
        import tvm_ffi

        places = Realigned.of(inputs, outputs)  # its vectors are loaded from aligned addresses, or the process dies
        try:
            tensors = [tvm_ffi.from_dlpack(each) for each in (*places.inputs, *self._weights, *places.outputs)]
        except Exception as error:
            raise KernelError(f"a buffer cannot be shown to TVM: {error}") from error
        call = functools.partial(self._function, *tensors)
        call.__dict__["keeps"] = (places, self._weights)
        return places.around(call)
