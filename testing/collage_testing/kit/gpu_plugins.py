"""What tests of plugins for NVIDIA GPUs share: a machine with one that is not there, and what is proposed on it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import onnx_ir

from collage_core.candidates.proposals import Proposals, propose, target_rule
from collage_core.contract import Device, Host, KernelFunction, Target
from collage_core.fusion import CandidateBounds, CandidateKernel, kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing.graphs import GraphBuilder
from collage_testing.kit.elsewhere import python
from collage_testing.kit.received import received

H100 = Device(name="cuda:0", model="NVIDIA H100", compute_capability="9.0", driver="580.65.06", memory_bytes=80 << 30)
HOST = Host(system="Linux x86_64", cpu="test", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(H100,))

_FLOAT = onnx_ir.DataType.FLOAT


def proposed(plugin: object, of: onnx_ir.Model | DataflowGraph, target: Target) -> Proposals:
    """Propose what a plugin takes of a model, its library not asked.

    Args:
        plugin: The plugin.
        of: The model.
        target: One of the plugin's targets.
    """
    graph = of if isinstance(of, DataflowGraph) else DataflowGraph(of)
    rule = target_rule(Toolchain(target.toolchain, plugin), target, {})
    return propose(rule, graph, CandidateBounds.preset("quick"))


def largest_of(candidates: Iterable[CandidateKernel]) -> KernelFunction:
    """Make the kernel function of the candidate of most nodes; of several, the first."""
    return received(kernel_function(max(candidates, key=lambda each: len(each.sub_graph.names)).sub_graph, "kernel"))


def scaled_weight(g: GraphBuilder, name: str, *shape: int, dtype: onnx_ir.DataType = _FLOAT) -> onnx_ir.Value:
    """Draw a weight of any type whose products keep the scale of what they multiply."""
    random = np.random.default_rng(len(name) + sum(shape))
    array = random.standard_normal(shape) / np.sqrt(max(1, int(np.prod(shape[1:]))))
    return g.constant(name, array.astype(dtype.numpy()))


def activated(g: GraphBuilder, activation: str, x: onnx_ir.Value) -> onnx_ir.Value:
    """Apply an activation by name, as models write it; nothing for an empty one."""
    dtype = x.dtype.numpy() if x.dtype else np.float32

    def number(name: str, value: float) -> onnx_ir.Value:
        return g.constant(f"{name}_{g.count}", np.asarray(value, dtype))

    match activation:
        case "":
            return x
        case "Silu":
            return g.op("Mul", x, g.op("Sigmoid", x))
        case "QuickGelu":
            return g.op("Mul", x, g.op("Sigmoid", g.op("Mul", x, number("factor", 1.702))))
        case "Relu6":
            return g.op("Clip", x, number("least", 0.0), number("most", 6.0))
        case "HardTanh":
            return g.op("Clip", x, number("least", -0.5), number("most", 0.75))
        case "GeluTanh":
            return g.op("Gelu", x, approximate="tanh")
        case "LeakyRelu":
            return g.op("LeakyRelu", x, alpha=0.2)
        case "GentleElu":
            return g.op("Elu", x, alpha=0.7)
    return g.op(activation, x)


def check_import_loads_nothing(plugin: str, *names: str) -> None:
    """Check that importing a plugin neither imports modules nor maps shared libraries.

    Args:
        plugin: Module of the plugin.
        *names: Top-level modules that must not be imported; what follows `lib` in the names of such libraries.

    Raises:
        AssertionError: If it loads one; says which.
    """
    python(
        "-c",
        f"import re, sys, pathlib, {plugin}\n"
        f"names = {names!r}\n"
        "maps = pathlib.Path('/proc/self/maps')\n"
        "mapped = maps.read_text() if maps.exists() else ''\n"
        "found = {name for name in names if any(each.partition('.')[0] == name for each in sys.modules)}\n"
        "found |= {name for name in names if re.search(rf'/lib{name}[^/]*[.]so', mapped)}\n"
        "assert not found, found\n",
    )
