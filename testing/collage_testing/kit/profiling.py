"""Profiles of kernels of the CPU, and small blocks that libraries fuse, to try a plugin's profiles on.

profile = profiled(plugin, Target(toolchain="sampler", fingerprint="test"), BLOCKS["Conv, Relu"](), tmp_path)
assert ("conv", "relu") in [part.nodes for part in profile.parts]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx_ir.passes.common import ShapeInferencePass

from collage_core.contract import BoundCall, Buffer, Kernel, KernelFunction, KernelProfile, Target, Unsupported
from collage_core.registry import Toolchain
from collage_testing.kit.host_kernels import HostKernels
from collage_testing.kit.written import Array, WrittenFunction, written


def profiled(
    plugin: object,
    target: Target,
    what: WrittenFunction,
    scratch: Path,
    *,
    feeds: Mapping[str, Any] | None = None,
    runs: int = 2,
) -> KernelProfile:
    """Lower a function, and have its first variant profiled by a plugin behind its façade.

    Args:
        plugin: Its hooks.
        target: Of the CPU.
        what: The function. Its nodes have the names of their first outputs in the profile.
        scratch: A directory for the toolchain.
        feeds: Inputs by name; seeded random numbers if None.
        runs: Runs that count.

    Raises:
        AssertionError: If the plugin refuses.
        PluginError: If the answer is none of the contract.
    """
    named = dataclasses.replace(what, function=_named(what.function))
    kernels = HostKernels(plugin, target, scratch)
    [artifact, *_] = kernels.lowered(named, effort=1)
    rng = np.random.default_rng(0)
    inputs = [Buffer(spec) for spec in named.function.inputs]
    outputs = [Buffer(spec) for spec in named.function.outputs]
    for buffer in inputs:
        random = rng.standard_normal(buffer.spec.static_shape).astype(buffer.spec.numpy_dtype)
        buffer.put(random if feeds is None else feeds[buffer.spec.name])
    held: list[Kernel] = []

    def bind(kernel: Kernel) -> BoundCall:
        held.append(kernel)
        return kernel.bind(inputs, outputs, None)

    run = kernels.run_context(named)
    found = Toolchain(target.toolchain, plugin).profile(target, named.function, artifact, run, bind, runs)
    assert not isinstance(found, Unsupported), found.reason
    return found


def _named(function: KernelFunction) -> KernelFunction:
    """Return a function as core makes it: shapes are known, and each node has a name of its own."""
    model = ShapeInferencePass()(function.model.clone()).model
    for node in model.graph:
        node.name = node.outputs[0].name
    return dataclasses.replace(function, model=model)


def _weights(**shapes: tuple[int, ...]) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) * 0.1 for name, shape in shapes.items()}


def _convolution() -> WrittenFunction:
    return written(
        "g (float[1,16,24,24] x) => (float[1,16,24,24] relu)"
        " { conv = Conv<pads=[1,1,1,1]>(x, w, b) relu = Relu(conv) }",
        _weights(w=(16, 16, 3, 3), b=(16,)),
    )


def _residual() -> WrittenFunction:
    return written(
        "g (float[1,16,24,24] x) => (float[1,16,11,11] y) {"
        " conv0 = Conv<pads=[1,1,1,1]>(x, w, b) relu0 = Relu(conv0)"
        " conv1 = Conv<pads=[1,1,1,1]>(relu0, w1) add = Add(conv1, relu0) relu1 = Relu(add)"
        " conv2 = Conv<pads=[1,1,1,1]>(relu1, w2) y = MaxPool<kernel_shape=[3,3], strides=[2,2]>(conv2) }",
        _weights(w=(16, 16, 3, 3), b=(16,), w1=(16, 16, 3, 3), w2=(16, 16, 3, 3)),
    )


def _transformer() -> WrittenFunction:
    halves = {"half": np.float32(0.5), "one": np.float32(1.0), "root": np.float32(2**0.5), "scale": np.float32(0.25)}
    scalars = {name: np.array(value) for name, value in halves.items()}
    shapes = {"heads": np.array([1, 32, 4, 16], np.int64), "flat": np.array([1, 32, 64], np.int64)}
    return written(
        "g (float[1,32,64] x) => (float[1,32,64] y) {"
        " norm = LayerNormalization<axis=-1>(x, gamma, beta)"
        " q = MatMul(norm, wq) qb = Add(q, bq) qr = Reshape(qb, heads) qt = Transpose<perm=[0,2,1,3]>(qr)"
        " k = MatMul(norm, wk) kb = Add(k, bk) kr = Reshape(kb, heads) kt = Transpose<perm=[0,2,3,1]>(kr)"
        " v = MatMul(norm, wv) vb = Add(v, bv) vr = Reshape(vb, heads) vt = Transpose<perm=[0,2,1,3]>(vr)"
        " scores = MatMul(qt, kt) scaled = Mul(scores, scale) weights = Softmax<axis=-1>(scaled)"
        " mixed = MatMul(weights, vt) mt = Transpose<perm=[0,2,1,3]>(mixed) mr = Reshape(mt, flat)"
        " p = MatMul(mr, wp) pb = Add(p, bp) skip = Add(pb, x)"
        " norm1 = LayerNormalization<axis=-1>(skip, gamma1, beta1)"
        " up = MatMul(norm1, wu) ub = Add(up, bu)"
        " g0 = Div(ub, root) g1 = Erf(g0) g2 = Add(g1, one) g3 = Mul(ub, g2) gelu = Mul(g3, half)"
        " down = MatMul(gelu, wd) db = Add(down, bd) y = Add(db, skip) }",
        {
            **_weights(gamma=(64,), beta=(64,), gamma1=(64,), beta1=(64,)),
            **_weights(wq=(64, 64), wk=(64, 64), wv=(64, 64), wp=(64, 64), wu=(64, 256), wd=(256, 64)),
            **_weights(bq=(64,), bk=(64,), bv=(64,), bp=(64,), bu=(256,), bd=(64,)),
            **scalars,
            **shapes,
        },
    )


def _control_flow() -> WrittenFunction:
    return written(
        "g (float[64,64] x, bool c) => (float[64,64] y) {"
        " a = Relu(x)"
        " b = If(c) <then_branch = t () => (float[64,64] tb) { q = MatMul(a, a) tb = Tanh(q) },"
        " else_branch = e () => (float[64,64] eb) { eb = Neg(a) }>"
        " l = Loop(n, go, b) <body = s (int64 i, bool ci, float[64,64] z) => (bool co, float[64,64] zo)"
        " { co = Identity(ci) zm = MatMul(z, a) zo = Tanh(zm) }>"
        " y = Sigmoid(l) }",
        {"n": np.array(5, np.int64), "go": np.array(True)},
    )


def _quantised() -> WrittenFunction:
    rng = np.random.default_rng(0)
    bytes_of = {"w": (16, 16, 3, 3), "w1": (16, 16, 3, 3)}
    return written(
        "g (float[1,16,24,24] x) => (float[1,16,24,24] y) {"
        " qx = QuantizeLinear(x, s, z) dx = DequantizeLinear(qx, s, z) dw = DequantizeLinear(w, sw, zw)"
        " conv = Conv<pads=[1,1,1,1]>(dx, dw) relu = Relu(conv) q = QuantizeLinear(relu, s, z)"
        " d = DequantizeLinear(q, s, z) dw1 = DequantizeLinear(w1, sw, zw)"
        " conv1 = Conv<pads=[1,1,1,1]>(d, dw1) q1 = QuantizeLinear(conv1, s, z) y = DequantizeLinear(q1, s, z) }",
        {
            **{name: rng.integers(-100, 100, shape).astype(np.int8) for name, shape in bytes_of.items()},
            "s": np.array(0.05, np.float32),
            "z": np.array(128, np.uint8),
            "sw": np.array(0.01, np.float32),
            "zw": np.array(0, np.int8),
        },
    )


BLOCKS: Mapping[str, Callable[[], WrittenFunction]] = MappingProxyType(
    {
        "Conv, Relu": _convolution,
        "residual": _residual,
        "transformer": _transformer,
        "If, Loop": _control_flow,
        "quantised": _quantised,
    }
)
"""Makers of blocks: what libraries fuse, convert and run in bodies, in a few nodes each."""
