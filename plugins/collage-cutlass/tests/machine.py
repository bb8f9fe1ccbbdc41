"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import dataclasses

import onnx_ir

from collage_core.candidates.proposals import Proposals
from collage_core.contract import KernelFunction, Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cutlass.plugin import CutlassPlugin
from collage_testing.kit import DeviceMachine, FakeDevice
from collage_testing.kit.gpu_plugins import HOST, largest_of, proposed

from .emulator import Emulated, FakeCompiler

TARGET = Target(toolchain="cutlass", device="cuda:0", fingerprint=FakeCompiler.identity)
TF32, FP16, BF16 = (
    dataclasses.replace(TARGET, options=(("precision", each),), exact=False) for each in ("tf32", "fp16", "bf16")
)


def plugin_over(compiler: FakeCompiler, calls: list[str] | None = None) -> CutlassPlugin:
    """The plugin without nvcc, a GPU or anybody who knows tiles."""
    noted = [] if calls is None else calls
    return CutlassPlugin(lambda: compiler, lambda data, folder: Emulated(data, noted), lambda *problem: ())


def emulated(calls: list[str] | None = None) -> DeviceMachine:
    """That machine, where nothing is compiled and calls are noted."""
    toolchain = Toolchain("cutlass", plugin_over(FakeCompiler(), calls))
    return DeviceMachine.fake(toolchain, HOST, FakeDevice("cuda:0"))


def proposals(of: onnx_ir.Model | DataflowGraph, target: Target = TARGET) -> Proposals:
    return proposed(plugin_over(FakeCompiler()), of, target)


def largest(model: onnx_ir.Model, target: Target = TARGET) -> KernelFunction:
    return largest_of(proposals(model, target).candidates)
