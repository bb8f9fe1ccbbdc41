"""All plugins for NVIDIA's GPUs at once, over emulations of their libraries on one fake device.

Their kernels are what a GPU would be given, up to the call of the library; each plugin's own tests say what its
emulation is made from.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
from collections.abc import Iterator
from typing import Any

from collage_testing.kit import FakeDevice


@contextlib.contextmanager
def plugins(device: FakeDevice) -> Iterator[dict[str, Any]]:
    """The plugins by name, for as long as Triton's interpreter runs; without its own where that is not installed.

    Args:
        device: In place of the GPU, of the name `"cuda:0"`.
    """
    cublas, cudnn, cutlass, tensorrt = (
        importlib.import_module(f"plugins.collage-{name}.tests.machine")
        for name in ("cublas", "cudnn", "cutlass", "tensorrt")
    )
    library = tensorrt.Library(rtx=False, device=device, capability="9.0")
    found = {
        "cublas": cublas.plugin_over(cublas.Emulator()),
        "cudnn": cudnn.plugin_over(cudnn.Emulator()),
        "cutlass": cutlass.plugin_over(cutlass.FakeCompiler()),
        "tensorrt": tensorrt.plugin_over(library, tensorrt.TENSORRT),
    }
    if importlib.util.find_spec("triton") is None:
        yield found
        return
    triton = importlib.import_module("plugins.collage-triton.tests.emulation")
    with triton.Interpreter() as interpreter:
        yield {**found, "triton": triton.emulated(device, interpreter)}
