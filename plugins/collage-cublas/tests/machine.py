"""A machine with a GPU that is not there, and what is offered to the toolchain on it."""

from __future__ import annotations

import dataclasses

import onnx_ir

from collage_core.candidates.proposals import Proposals
from collage_core.contract import KernelFunction, Target
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_cublas.library import Library
from collage_cublas.plugin import CublasPlugin
from collage_testing.kit import DeviceMachine, FakeDevice
from collage_testing.kit.gpu_plugins import HOST, largest_of, proposed

from .emulator import Emulator

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
    return proposed(plugin_over(Emulator()), of, target)


def largest(model: onnx_ir.Model, target: Target = TARGET) -> KernelFunction:
    return largest_of(proposals(model, target).candidates)
