"""A module of `benchmarks/models/torch_zoo` in PyTorch: eager, or compiled by `torch.compile`.

A run is timed by the host's clock from the call until the stream is idle, with inputs and outputs in the
GPU's memory; the same holds for every contender on a GPU. Device events would leave out the host's work
before the first kernel starts, which is what CUDA graphs save; and each library has its own streams, on
which only that library could record events.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from benchmarks.models.torch_zoo import ZOO
from benchmarks.models.torch_zoo.precision import InPrecision
from benchmarks.models.torch_zoo.weights import load

WARM_UP = 3
"""Runs before the first timed one: Inductor's CUDA graphs exist after two, cuDNN's algorithms after one."""


def setup(
    model_path: str,
    inputs: dict[str, np.ndarray[Any, Any]],
    threads: int,
    *,
    architecture: str,
    dtype: str = "float32",
    tf32: str = "false",
    device: str = "cuda:0",
    mode: str = "eager",
    graph: str = "true",
    channels_last: str = "false",
    freezing: str = "false",
) -> Callable[[], Any]:
    """Build a module, load its weights, and compile or capture it.

    Args:
        model_path: Weights as `torch_zoo.weights.save` writes them.
        inputs: Arrays in the order of the module's arguments; they are put on the device once.
        threads: Of the CPU.
        architecture: A name of the zoo.
        dtype: Of weights and of what is computed.
        tf32: `true` lets products and convolutions of float32 round to TF32.
        device: Where; `cpu` for a rehearsal.
        mode: `eager`, or a mode of `torch.compile`, which then makes CUDA graphs itself if the mode says so.
        graph: `false` leaves an eager module's kernels to be launched one by one.
        channels_last: `true` keeps images and their filters with channels last.
        freezing: `true` has Inductor take weights for constants, so that it may fold them.
    """
    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)
    use_tf32(tf32 == "true")
    torch.backends.cudnn.benchmark = True
    on_gpu = device != "cpu"
    if on_gpu:
        torch.cuda.set_device(device)
    module = InPrecision(load(Path(model_path), ZOO[architecture].module()), dtype).to(device)
    values = [torch.from_numpy(array).to(device) for array in inputs.values()]
    if channels_last == "true":
        module, values = _with_channels_last(module, values)
    run: Callable[..., Any] = module
    if mode != "eager":
        if freezing == "true":
            import torch._inductor.config as inductor

            inductor.freezing = True
        run = torch.compile(module, mode=mode, fullgraph=True, dynamic=False)
    results: list[Any] = [None]

    def launch() -> None:
        results[0] = run(*values)

    captured = on_gpu and mode == "eager" and graph == "true"
    note = "on the CPU" if not on_gpu else "kernels launched one by one"
    with _warm_up_stream(captured):
        for _ in range(WARM_UP):
            launch()
    if captured:
        held = torch.cuda.CUDAGraph()
        with torch.cuda.graph(held):
            launch()
        launch, note = held.replay, "one CUDA graph"
    elif on_gpu and mode != "eager":
        note = _graphs_of_inductor()
    synchronise = torch.cuda.current_stream().synchronize if on_gpu else None

    def call() -> None:
        launch()
        if synchronise is not None:
            synchronise()

    call()
    call.outputs = lambda: [each.cpu().numpy() for each in results[0]]  # type: ignore[attr-defined]
    call.note = note  # type: ignore[attr-defined]
    call.kept = values  # type: ignore[attr-defined]  # A graph reads them where they are.
    return call


def use_tf32(allowed: bool) -> None:
    """Say whether products and convolutions of float32 may round to TF32; by default PyTorch lets convolutions."""
    # two interfaces, old and new: Inductor reads both, and reading the old one fails where they contradict each other
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed
    if hasattr(torch.backends.cudnn, "fp32_precision"):
        torch.backends.cudnn.fp32_precision = "tf32" if allowed else "ieee"


def _with_channels_last(module: InPrecision, values: list[torch.Tensor]) -> tuple[InPrecision, list[torch.Tensor]]:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    for value in values:
        if value.dim() in formats:
            module = module.to(memory_format=formats[value.dim()])
    placed = [v.contiguous(memory_format=formats[v.dim()]) if v.dim() in formats else v for v in values]
    return module, placed


@contextlib.contextmanager
def _warm_up_stream(captured: bool) -> Any:
    """Run the block on another stream before a capture, as PyTorch's notes on CUDA graphs require."""
    if not captured:
        yield
        return
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        yield
    torch.cuda.current_stream().wait_stream(stream)


def _graphs_of_inductor() -> str:
    from torch._dynamo.utils import counters

    skipped = counters["inductor"]["cudagraph_skips"]
    return (
        f"Inductor made no CUDA graph {skipped} times" if skipped else "CUDA graphs by Inductor, if its mode has them"
    )
