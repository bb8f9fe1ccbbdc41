"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import onnx_ir

from collage_core.candidates.proposals import Proposals
from collage_core.contract import Joins, KernelFunction, Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.operators.narrowing import PRODUCTS
from collage_core.registry import Toolchain
from collage_cudnn.library import Library
from collage_cudnn.loading import FRONTEND
from collage_cudnn.plugin import CudnnPlugin
from collage_testing.kit import DeviceMachine, FakeDevice
from collage_testing.kit.gpu_plugins import HOST, largest_of, proposed

from .emulator import Emulator

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
    # without regions, the groups alone
    return proposed(plugin_over(Emulator()), of, target if regions else _without_joins(target))


def largest(model: onnx_ir.Model, target: Target = TARGET, *, regions: bool = False) -> KernelFunction:
    return largest_of(proposals(model, target, regions=regions).candidates)


def _without_joins(target: Target) -> Target:
    return Target(
        toolchain=target.toolchain,
        device=target.device,
        options=target.options,
        fingerprint=target.fingerprint,
        exact=target.exact,
        rounds=target.rounds,
    )
