"""Machines with GPUs that are not there, and regions of models for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx_ir

from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Artifact, BuildContext, Device, DeviceStream, Host, KernelFunction, Target
from collage_core.fusion import CandidateBounds, SubGraph, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_tensorrt.editions import RTX, TENSORRT, Edition
from collage_tensorrt.plugin import TensorRtPlugin, targets
from collage_testing import kit, mnist
from collage_testing.kit import FakeDevice

from .emulated import Library

RTX_4090 = Device(
    name="cuda:0", model="NVIDIA RTX 4090", compute_capability="8.9", driver="580.65.06", memory_bytes=24 << 30
)
H200 = dataclasses.replace(RTX_4090, model="NVIDIA H200", compute_capability="9.0")
HOST = Host(
    system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(RTX_4090,)
)
EDITIONS = {"tensorrt": TENSORRT, "tensorrt_rtx": RTX}


def target(edition: Edition = RTX, precision: str = "") -> Target:
    """As the plugin itself makes it."""
    found = {each.option("precision") or "": each for each in targets(edition, "test", [RTX_4090])}
    return found[precision]


def plugin_over(library: Any, edition: Edition = RTX) -> TensorRtPlugin:
    return TensorRtPlugin(edition, lambda: library, lambda name: None)


def build_context(folder: Path, **fields: Any) -> BuildContext:
    return kit.build_context(folder, **({"host": HOST} | fields))


def whole(model: onnx_ir.Model) -> KernelFunction:
    graph = DataflowGraph(model)
    return kernel_function(SubGraph(graph, graph.all_mask), "whole")


def regions() -> Mapping[str, KernelFunction]:
    """Three of MNIST: a convolution with what follows it, a pooling, the product at the end."""
    graph = DataflowGraph(mnist())
    cuts = {
        "convolution": ("conv_0", "add_0", "relu_0"),
        "pooling": ("maxpool_0",),
        "product": ("reshape_0", "matmul_0", "add_2"),
    }
    masks = {label: sum(1 << graph.index_of(name) for name in names) for label, names in cuts.items()}
    return {label: kernel_function(SubGraph(graph, mask), label) for label, mask in masks.items()}


def lowered(
    plugin: TensorRtPlugin, function: KernelFunction, build: BuildContext, on: Target | None = None
) -> list[Artifact]:
    answer = plugin.collage_lower(on or target(), function, build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def proposals(plugin: TensorRtPlugin, graph: DataflowGraph, on: Target) -> Proposals:
    """What a target is offered of a model, its library asked first."""
    function = kernel_function(SubGraph(graph, graph.all_mask), "model")
    queried = plugin.collage_query(on, function) or {}
    query = {graph.index_of(name): reason for name, reason in queried.items()}
    rule = target_rule(Toolchain(on.toolchain, plugin), on, query)
    return propose(rule, graph, CandidateBounds.preset("quick"), cuts=None)


def fake() -> tuple[FakeDevice, DeviceStream]:
    """A device in the place of the RTX 4090, and a stream of it."""
    device = FakeDevice("cuda:0")
    return device, device.open("cuda:0")


def emulated(edition: Edition, device: FakeDevice | None = None) -> Library:
    return Library(rtx=edition is RTX, device=device)
