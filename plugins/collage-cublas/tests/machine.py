"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import dataclasses

import onnx_ir

from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Device, Host, KernelFunction, Target
from collage_core.fusion import CandidateBounds, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cublas.library import Library
from collage_cublas.plugin import CublasPlugin
from collage_testing.kit import DeviceMachine, FakeDevice

from .emulator import Emulator

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))
TARGET = Target(toolchain="cublas", device="cuda:0", fingerprint="cublaslt 130000")
TF32, FP16, BF16 = (
    dataclasses.replace(TARGET, options=(("precision", each),), exact=False) for each in ("tf32", "fp16", "bf16")
)


def plugin_over(library: Library) -> CublasPlugin:
    return CublasPlugin(lambda majors: library)


def emulated(emulator: Emulator | None = None) -> DeviceMachine:
    """That machine, where cuBLASLt is emulated."""
    toolchain = Toolchain("cublas", plugin_over(emulator or Emulator()))
    return DeviceMachine.fake(toolchain, HOST, FakeDevice("cuda:0"))


def proposals(of: onnx_ir.Model | DataflowGraph, target: Target = TARGET) -> Proposals:
    toolchain = Toolchain("cublas", plugin_over(Emulator()))
    graph = of if isinstance(of, DataflowGraph) else DataflowGraph(of)
    return propose(target_rule(toolchain, target, {}), graph, CandidateBounds.preset("quick"))


def largest(model: onnx_ir.Model, target: Target = TARGET) -> KernelFunction:
    """The kernel function of the largest candidate; of several, the first."""
    candidates = proposals(model, target).candidates
    return kernel_function(max(candidates, key=lambda each: len(each.sub_graph.names)).sub_graph, "kernel")
