"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import dataclasses

import onnx_ir

from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Device, Host, KernelFunction, Target
from collage_core.fusion import CandidateBounds, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cutlass.plugin import CutlassPlugin

from .emulator import Emulated, FakeCompiler

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))
TARGET = Target(toolchain="cutlass", device="cuda:0", fingerprint=FakeCompiler.identity)
TF32, FP16, BF16 = (
    dataclasses.replace(TARGET, options=(("precision", each),), exact=False) for each in ("tf32", "fp16", "bf16")
)


def plugin_over(compiler: FakeCompiler, calls: list[str] | None = None) -> CutlassPlugin:
    """The plugin without nvcc, a GPU or anybody who knows tiles."""
    noted = [] if calls is None else calls
    return CutlassPlugin(lambda: compiler, lambda data, folder: Emulated(data, noted), lambda *problem: ())


def proposals(of: onnx_ir.Model | DataflowGraph, target: Target = TARGET) -> Proposals:
    toolchain = Toolchain("cutlass", plugin_over(FakeCompiler()))
    graph = of if isinstance(of, DataflowGraph) else DataflowGraph(of)
    return propose(target_rule(toolchain, target, {}), graph, CandidateBounds.preset("quick"))


def largest(model: onnx_ir.Model, target: Target = TARGET) -> KernelFunction:
    """The kernel function of the largest candidate; of several, the first."""
    candidates = proposals(model, target).candidates
    return kernel_function(max(candidates, key=lambda each: len(each.sub_graph.names)).sub_graph, "kernel")
