"""cuDNN without a GPU: graphs are noted down, and computed by a fake device when its stream comes to them.

What a node means is written from NVIDIA's documentation (cuDNN frontend, "Operations"; `cudnnPointwiseMode_t`), with
NumPy and in float32: nothing is read but the graph, addresses and strides. Nothing is done before the stream comes to
it, and what the documentation or the frontend's headers forbid is refused.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from collage_core.contract import DEVICE_ALIGNMENT_BYTES
from collage_cudnn.errors import CudnnError, NotSupportedError
from collage_cudnn.graph import Graph
from collage_cudnn.library import Conversion, Enqueue, Found, Offer
from collage_testing.kit import FakeStream, stream_of
from collage_testing.kit.fake_hardware import FakeHardware, FakeMemory

VERSION = 92000
PLANS = (("eng10_k2=7", 1 << 12), ("eng45_k2=1", 0), ("eng22_k2=4", 1 << 20), ("eng0", 1 << 40))
"""What the emulated heuristics know: names and workspace; the last needs more than anybody gives."""

_NUMPY = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BFLOAT16": np.dtype(ml_dtypes.bfloat16),
}
Array = np.ndarray[Any, Any]


class Emulator:
    """A `Library`.

    Args:
        refuses: Says why a graph has no plan; None if it has.
        fails: Gives what is raised when a plan of a graph is built; None if it can be.

    Attributes:
        calls: What was asked of the device, in order.
        graphs: Graphs that plans were asked for, with whether float32 was to be exact.
    """

    def __init__(
        self,
        refuses: Callable[[Graph, bool], str | None] = lambda graph, exact: None,
        fails: Callable[[Graph], Exception | None] = lambda graph: None,
    ) -> None:
        self._refuses = refuses
        self._fails = fails
        self._streams: dict[int, int | None] = {}
        self._numbers = itertools.count(1)
        self.calls: list[str] = []
        self.graphs: list[tuple[Graph, bool]] = []

    def version(self) -> int:
        return VERSION

    def handle(self, device: str, stream: int | None) -> int:
        self.calls.append(f"handle {device} {stream}")
        handle = next(self._numbers)
        self._streams[handle] = stream
        return handle

    def put_on(self, handle: int, stream: int) -> None:
        assert handle in self._streams
        self.calls.append(f"put {handle} on {stream}")
        self._streams[handle] = stream

    def offer(self, graph: Graph, handle: int, *, exact: bool) -> Offer:
        assert handle in self._streams
        self.graphs.append((graph, exact))
        if reason := self._refuses(graph, exact):
            raise NotSupportedError(reason)

        def build(position: int) -> Found:
            called, scratch = PLANS[position]
            self.calls.append(f"build {called}")
            if (error := self._fails(graph)) is not None:
                raise error
            plan = {"graph": graph.to_json(), "name": called, "scratch": scratch, "version": VERSION}
            return Found(called, position, scratch, json.dumps(plan).encode())

        return Offer(tuple(called for called, _ in PLANS), build)

    def executed(self, data: bytes, handle: int, places: Mapping[int, int], workspace: int) -> Enqueue:
        plan = json.loads(data)
        graph, stream = plan["graph"], self._stream(handle)
        if set(places) != set(range(1, len(graph["inputs"]) + 2)):
            raise CudnnError(f"the graph's tensors are {len(graph['inputs'])} and the result, not {sorted(places)}")
        if any(place % DEVICE_ALIGNMENT_BYTES for place in places.values()):
            raise CudnnError("a place is less aligned than the plan was made for")

        def call() -> None:
            self.calls.append("execute")
            work = functools.partial(_execute, stream.device, graph, places, workspace, plan["scratch"])
            stream.enqueue(plan["name"], work)

        return call

    def converted(self, conversion: Conversion, handle: int, source: int, destination: int) -> Enqueue:
        stream = self._stream(handle)
        if not 4 <= len(conversion.dims) <= 8:
            raise CudnnError("cudnnSetTensorNdDescriptor: CUDNN_STATUS_BAD_PARAM")

        def copy() -> None:
            dims, dtype = conversion.dims, conversion.dtype.name
            read = _view(stream.device, source, dims, conversion.before, dtype).copy()
            _view(stream.device, destination, dims, conversion.after, dtype)[...] = read

        def call() -> None:
            self.calls.append("convert")
            stream.enqueue("cudnnTransformTensor", copy)

        return call

    def place(self, array: Array, handle: int) -> FakeMemory:
        self.calls.append(f"place {array.nbytes}")
        memory = self._stream(handle).device.allocate(array.nbytes)
        ctypes.memmove(memory.pointer, array.ctypes.data, array.nbytes)
        return memory

    def _stream(self, handle: int) -> FakeStream:
        stream = self._streams[handle]
        assert stream is not None, "a handle without a stream only builds"
        return stream_of(stream)


def _execute(
    device: FakeHardware, graph: Mapping[str, Any], places: Mapping[int, int], workspace: int, scratch: int
) -> None:
    """What a plan does once its stream comes to it."""
    dtype = graph["dtype"]
    values = {
        tensor["name"]: _view(device, places[number], tensor["dims"], tensor["strides"], dtype).astype(np.float32)
        for number, tensor in enumerate(graph["inputs"], 1)
    }
    for operation in graph["operations"]:
        reads = {argument: values[name] for argument, name in operation["reads"].items()}
        result = computed(operation, reads)
        assert list(result.shape) == list(operation["writes"]["dims"]), operation
        values[operation["writes"]["name"]] = result
    last = graph["operations"][-1]["writes"]
    place = _view(device, places[len(graph["inputs"]) + 1], last["dims"], last["strides"], dtype)
    place[...] = values[last["name"]].astype(place.dtype)
    if scratch:  # a plan may leave anything there
        device.view(workspace, (scratch,), np.uint8)[:] = 0xFF


def computed(operation: Mapping[str, Any], reads: Mapping[str, Array]) -> Array:
    """What one node gives, in float32."""
    kind, attributes, scalars = operation["kind"], operation["attributes"], operation["scalars"]
    dims = operation["writes"]["dims"]
    match kind:
        case "conv_fprop":
            return convolution(reads["image"], reads["weight"], attributes)
        case "conv_dgrad":
            return data_gradient(reads["loss"], reads["filter"], attributes, dims)
        case "matmul":
            return np.matmul(reads["A"], reads["B"])
        case "sdpa":
            return _attention(reads, attributes)
        case "add":
            return reads["a"] + reads["b"]
        case "mul":
            return reads["a"] * reads["b"]
        case "layernorm" | "rmsnorm" | "instancenorm":
            return _norm(kind, reads, scalars["epsilon"])
    x = reads["input"].astype(np.float64)
    return np.asarray(_POINTWISE[kind](x, attributes), np.float32)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_POINTWISE: Mapping[str, Callable[[Array, Mapping[str, float]], Array]] = {
    "relu": lambda x, of: np.clip(x, 0, of.get("upper_clip", np.inf)),
    "leaky_relu": lambda x, of: np.where(x > 0, x, of["negative_slope"] * x),
    "elu": lambda x, of: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "sigmoid": lambda x, of: _sigmoid(x),
    "tanh": lambda x, of: np.tanh(x),
    "softplus": lambda x, of: np.log1p(np.exp(x)),
    "swish": lambda x, of: x * _sigmoid(of["swish_beta"] * x),
    "gelu": lambda x, of: 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "gelu_approx_tanh": lambda x, of: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def convolution(image: Array, weight: Array, of: Mapping[str, Any]) -> Array:
    """A cross-correlation, written as its sum: over the taps of the window, one product of channels each."""
    pads = [(0, 0), (0, 0), *zip(of["pre_padding"], of["post_padding"], strict=True)]
    padded = np.pad(image, pads)
    groups = image.shape[1] // weight.shape[1]
    assert image.shape[1] == groups * weight.shape[1]
    assert weight.shape[0] % groups == 0
    window = [d * (k - 1) + 1 for d, k in zip(of["dilation"], weight.shape[2:], strict=True)]
    counts = [(n - w) // s + 1 for n, w, s in zip(padded.shape[2:], window, of["stride"], strict=True)]
    result = np.zeros((image.shape[0], weight.shape[0], *counts), np.float64)
    for tap in itertools.product(*map(range, weight.shape[2:])):
        part = padded[_taps(tap, counts, of)]
        for group, (rows, cols) in enumerate(_groups(groups, weight)):
            at: tuple[Any, ...] = (rows, slice(None), *tap)
            result[:, rows] += np.einsum("nc...,kc->nk...", part[:, cols], weight[at])
            assert 0 <= group < groups
    return result.astype(np.float32)


def data_gradient(loss: Array, weight: Array, of: Mapping[str, Any], dims: list[int]) -> Array:
    """The gradient of a convolution's image: each product goes back to where its tap was read."""
    groups = dims[1] // weight.shape[1]
    before, behind = of["pre_padding"], of["post_padding"]
    padded = np.zeros((*dims[:2], *(n + a + b for n, a, b in zip(dims[2:], before, behind, strict=True))), np.float64)
    for tap in itertools.product(*map(range, weight.shape[2:])):
        place = _taps(tap, loss.shape[2:], of)
        for rows, cols in _groups(groups, weight):
            at: tuple[Any, ...] = (rows, slice(None), *tap)
            part = np.einsum("nk...,kc->nc...", loss[:, rows], weight[at])
            padded[(place[0], cols, *place[2:])] += part
    inside = tuple(slice(a, a + n) for a, n in zip(before, dims[2:], strict=True))
    return padded[(slice(None), slice(None), *inside)].astype(np.float32)


def _taps(tap: tuple[int, ...], counts: Any, of: Mapping[str, Any]) -> tuple[slice, ...]:
    """The elements of a padded image that one tap of the window reads, in all its positions."""
    steps = zip(tap, of["dilation"], of["stride"], counts, strict=True)
    return (slice(None), slice(None), *(slice(t * d, t * d + (n - 1) * s + 1, s) for t, d, s, n in steps))


def _groups(groups: int, weight: Array) -> list[tuple[slice, slice]]:
    rows, cols = weight.shape[0] // groups, weight.shape[1]
    return [(slice(g * rows, (g + 1) * rows), slice(g * cols, (g + 1) * cols)) for g in range(groups)]


def _attention(reads: Mapping[str, Array], of: Mapping[str, Any]) -> Array:
    q, k, v = reads["q"], reads["k"], reads["v"]
    shared = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, shared, axis=1), np.repeat(v, shared, axis=1)
    scores = of["attn_scale"] * np.matmul(q, np.swapaxes(k, -1, -2))
    if "bias" in reads:
        scores = scores + reads["bias"]
    if of.get("causal"):
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.matmul(raised / raised.sum(axis=-1, keepdims=True), v)


def _norm(kind: str, reads: Mapping[str, Array], epsilon: float) -> Array:
    """Over the axes along which the scale has several elements, or over space for an instance norm."""
    x, scale = reads["input"], reads["scale"]
    axes = (
        tuple(range(2, x.ndim)) if kind == "instancenorm" else tuple(a for a in range(1, x.ndim) if scale.shape[a] > 1)
    )
    axes = axes or (1,)
    mean = 0 if kind == "rmsnorm" else x.mean(axis=axes, keepdims=True)
    spread = np.square(x - mean).mean(axis=axes, keepdims=True)
    return np.asarray((x - mean) / np.sqrt(spread + epsilon) * scale + reads.get("bias", 0), np.float32)


def _view(device: FakeHardware, pointer: int, dims: Any, strides: Any, dtype: str) -> Array:
    kind = _NUMPY[dtype]
    span = 1 + sum((extent - 1) * stride for extent, stride in zip(dims, strides, strict=True))
    flat = device.view(pointer, (span,), kind)
    return np.lib.stride_tricks.as_strided(flat, tuple(dims), [stride * kind.itemsize for stride in strides])
