"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import onnx_ir

from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Device, Host, Joins, KernelFunction, Target
from collage_core.fusion import CandidateBounds, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_core.registry import Toolchain
from collage_cudnn.library import Library
from collage_cudnn.loading import FRONTEND
from collage_cudnn.plugin import CudnnPlugin
from collage_testing.kit import DeviceMachine, FakeDevice

from .emulator import Emulator

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))
TARGET = Target(toolchain="cudnn", device="cuda:0", fingerprint="test", joins=Joins.ANY)
TF32 = Target(
    toolchain="cudnn",
    device="cuda:0",
    options=(("precision", "tf32"),),
    fingerprint="test",
    joins=Joins.ANY,
    exact=False,
    rounds=frozenset(PRODUCTS),
)


def plugin_over(library: Library) -> CudnnPlugin:
    return CudnnPlugin(lambda: library, lambda: FRONTEND)


def emulated(emulator: Emulator | None = None) -> DeviceMachine:
    """That machine, where cuDNN is emulated."""
    toolchain = Toolchain("cudnn", plugin_over(emulator or Emulator()))
    return DeviceMachine.fake(toolchain, HOST, FakeDevice("cuda:0"))


def proposals(of: onnx_ir.Model | DataflowGraph, target: Target = TARGET, *, regions: bool = False) -> Proposals:
    toolchain = Toolchain("cudnn", plugin_over(Emulator()))
    graph = of if isinstance(of, DataflowGraph) else DataflowGraph(of)
    # without regions, the groups alone
    rule = target_rule(toolchain, target if regions else _without_joins(target), {})
    return propose(rule, graph, CandidateBounds.preset("quick"))


def largest(model: onnx_ir.Model, target: Target = TARGET, *, regions: bool = False) -> KernelFunction:
    """The kernel function of the largest candidate; of several, the first."""
    candidates = proposals(model, target, regions=regions).candidates
    return kernel_function(max(candidates, key=lambda each: len(each.sub_graph.names)).sub_graph, "kernel")


def _without_joins(target: Target) -> Target:
    return Target(
        toolchain=target.toolchain,
        device=target.device,
        options=target.options,
        fingerprint=target.fingerprint,
        exact=target.exact,
        rounds=target.rounds,
    )
