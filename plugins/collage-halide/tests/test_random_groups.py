"""Random groups of operators against ONNX's reference, in all variants: how stages meet decides the schedules."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Buffer, KernelFunction, RunContext, Target, TensorSpec, Unsupported, ValueKind
from collage_core.ir.values.content import constant_of
from collage_halide.plugin import plugin
from collage_testing import GraphBuilder
from collage_testing.kit.contexts import build_context

TARGET = Target(toolchain="halide", fingerprint="test")
Shape = tuple[int, ...]
Step = Callable[["Drawn"], None]
_SECOND_RESULT = 0.4
"""Share of groups one inner value of which is a result, too."""


class Drawn:
    """A group that is being drawn: one value and its shape, and the one that it came from."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.g = GraphBuilder("group", seed=seed)
        self.shape: Shape = (1, self.draw.choice((3, 8)), self.draw.choice((5, 16, 33)), self.draw.choice((7, 20, 70)))
        self.value = self.g.input("x", *self.shape)
        self.known: list[tuple[onnx_ir.Value, Shape]] = [(self.value, self.shape)]

    def then(self, operator: str, *more: Any, shape: Shape | None = None, **attributes: Any) -> None:
        self.value = self.g.op(operator, self.value, *more, **attributes)
        self.shape = self.shape if shape is None else shape
        self.known.append((self.value, self.shape))

    def array(self, elements: Any, dtype: Any = np.float32) -> onnx_ir.Value:
        return self.g.constant(f"c{len(self.known)}_{self.g.count}", np.asarray(elements, dtype))


def unary(d: Drawn) -> None:
    d.then(d.draw.choice(("Relu", "Sigmoid", "Exp", "Abs", "Tanh", "HardSwish", "Neg")))


def beside(d: Drawn) -> None:
    others = [value for value, shape in d.known if shape == d.shape]
    d.then(d.draw.choice(("Add", "Mul", "Max")), d.draw.choice(others))


def broadcast(d: Drawn) -> None:
    axis = d.draw.randrange(len(d.shape))
    extents = [extent if place == axis else 1 for place, extent in enumerate(d.shape)][axis:]
    d.then("Mul", d.g.weight(f"w{len(d.known)}", *extents))


def transpose(d: Drawn) -> None:
    order = d.draw.sample(range(len(d.shape)), len(d.shape))
    d.then("Transpose", shape=tuple(d.shape[axis] for axis in order), perm=order)


def reduce(d: Drawn) -> None:
    axes = sorted(d.draw.sample(range(len(d.shape)), d.draw.choice((1, 2))))
    if np.prod([d.shape[axis] for axis in axes]) > 1:
        shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(d.shape))
        before, whole = d.value, d.shape
        d.then(d.draw.choice(("ReduceMean", "ReduceMax", "ReduceL2")), d.array(axes, np.int64), shape=shape)
        if d.draw.random() < 0.7:
            d.value, d.shape = d.g.op("Sub", before, d.value), whole


def softmax(d: Drawn) -> None:
    d.then("Softmax", axis=d.draw.randrange(-len(d.shape), 0))


def norm(d: Drawn) -> None:
    extent = d.shape[-1]
    weights = (d.g.weight(f"{name}{len(d.known)}", extent) for name in "sb")
    d.then("LayerNormalization", *weights, axis=-1)


def pad(d: Drawn) -> None:
    before, after = ([d.draw.randrange(3) for _ in d.shape] for _ in range(2))
    shape = tuple(sum(each) for each in zip(before, d.shape, after, strict=True))
    d.then("Pad", d.array([*before, *after], np.int64), shape=shape, mode=d.draw.choice(("constant", "edge")))


def cut(d: Drawn) -> None:
    axis = max(range(len(d.shape)), key=lambda each: d.shape[each])
    if d.shape[axis] == 1:
        return  # nothing would be left
    backwards = d.draw.random() < 0.3
    start, end, step = (-1, -d.shape[axis], -1) if backwards else (1, d.shape[axis], 2)
    extent = len(range(d.shape[axis])[start:end:step])
    shape = tuple(extent if place == axis else each for place, each in enumerate(d.shape))
    d.then("Slice", *(d.array([each], np.int64) for each in (start, end, axis, step)), shape=shape)


def concat(d: Drawn) -> None:
    axis = d.draw.randrange(len(d.shape))
    shape = tuple(extent * (2 if place == axis else 1) for place, extent in enumerate(d.shape))
    d.then("Concat", d.value, shape=shape, axis=axis)


def pool(d: Drawn) -> None:
    if min(d.shape[2:]) >= 3:
        shape = (*d.shape[:2], *((extent + 2 - 3) // 2 + 1 for extent in d.shape[2:]))
        d.then(
            d.draw.choice(("MaxPool", "AveragePool")), shape=shape, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4
        )


def depthwise(d: Drawn) -> None:
    kernel, dilations, strides = (
        [d.draw.choice(each) for _ in range(2)] for each in ((1, 2, 3, 5), (1, 1, 2), (1, 1, 2))
    )
    pads = [d.draw.randrange(3) for _ in range(4)]
    extents = [
        (d.shape[axis + 2] + pads[axis] + pads[axis + 2] - dilations[axis] * (kernel[axis] - 1) - 1) // strides[axis]
        + 1
        for axis in range(2)
    ]
    if min(extents) > 0:
        weight = d.g.weight(f"k{len(d.known)}", d.shape[1], 1, *kernel)
        window = {"kernel_shape": kernel, "dilations": dilations, "strides": strides, "pads": pads}
        d.then("Conv", weight, shape=(*d.shape[:2], *extents), group=d.shape[1], **window)


def convolve(d: Drawn) -> None:
    """A convolution whose channels are mixed, perhaps in groups."""
    group = d.draw.choice([each for each in (1, 2, 4) if d.shape[1] % each == 0])
    members, side, step = d.shape[1] // group, d.draw.choice((1, 3)), d.draw.choice((1, 1, 2))
    if members > 1 and members * side * side <= 64 and min(d.shape[2:]) > 1:
        results = group * d.draw.choice((1, 3, 5, 16))
        weight = d.g.weight(f"k{len(d.known)}", results, members, side, side)
        shape = (d.shape[0], results, *((extent - 1) // step + 1 for extent in d.shape[2:]))
        window = {"kernel_shape": [side] * 2, "pads": [side // 2] * 4, "strides": [step] * 2}
        d.then("Conv", weight, shape=shape, group=group, **window)


def resize(d: Drawn) -> None:
    if np.prod(d.shape) < 40_000:
        shape = (*d.shape[:2], *(extent * d.draw.choice((1, 2, 3)) for extent in d.shape[2:]))
        mode = d.draw.choice(("nearest", "linear", "cubic"))
        d.then("Resize", None, None, d.array(shape, np.int64), shape=shape, mode=mode)


def cumulate(d: Drawn) -> None:
    d.then("CumSum", d.array(d.draw.randrange(len(d.shape)), np.int64), reverse=d.draw.choice((0, 1)))


def gather(d: Drawn) -> None:
    axis = d.draw.randrange(len(d.shape))
    places = [d.draw.randrange(-d.shape[axis], d.shape[axis]) for _ in range(d.draw.choice((1, 4)))]
    shape = (*d.shape[:axis], len(places), *d.shape[axis + 1 :])
    d.then("Gather", d.array(places, np.int64), shape=shape, axis=axis)


def whole(d: Drawn) -> None:
    if np.prod(d.shape) > 1:
        axes = list(range(len(d.shape)))
        d.then("ReduceMax", d.array(axes, np.int64), shape=(1,) * len(d.shape))


STEPS: tuple[Step, ...] = (
    unary,
    unary,
    beside,
    broadcast,
    transpose,
    reduce,
    softmax,
    norm,
    pad,
    cut,
    concat,
    pool,
    depthwise,
    convolve,
    resize,
    cumulate,
    gather,
    whole,
)


def drawn(seed: int) -> KernelFunction:
    d = Drawn(seed)
    for _ in range(d.draw.randrange(2, 7)):
        d.draw.choice(STEPS)(d)
    if d.value is d.known[0][0]:
        d.then("Neg")
    others = [value for value, _ in d.known[1:-1]]
    also = [d.draw.choice(others)] if others and d.draw.random() < _SECOND_RESULT else []
    model = d.g.model(d.value, *also)
    specs = [
        TensorSpec(
            name=str(each.name),
            kind=ValueKind.PLANNED,
            dtype=each.dtype,
            shape=tuple(each.shape.numpy() if each.shape else ()),
        )
        for each in (*(value for value in model.graph.inputs if constant_of(value) is None), *model.graph.outputs)
    ]
    return KernelFunction(name="group", model=model, inputs=tuple(specs[:1]), outputs=tuple(specs[1:]))


def check(seed: int, scratch: Path) -> None:
    import onnx.reference

    function = drawn(seed)
    x = np.random.default_rng(seed).standard_normal(function.inputs[0].static_shape).astype(np.float32)
    expected = onnx.reference.ReferenceEvaluator(onnx_ir.to_proto(function.model)).run(None, {"x": x})
    answer = plugin.collage_lower(TARGET, function, build_context(scratch, max_variants=9, threads=2))
    assert not isinstance(answer, Unsupported), answer.reason
    for artifact in answer:
        constants = {content: function.constant(name) for name, content in artifact.constants.items()}
        kernel = plugin.collage_load(TARGET, artifact, RunContext(threads=2, host=this_host(), constants=constants))
        assert not isinstance(kernel, Unsupported), kernel.reason
        inputs, outputs = ([Buffer(spec) for spec in specs] for specs in (function.inputs, function.outputs))
        inputs[0].put(x)
        kernel.bind(inputs, outputs, None)()
        for output, right in zip(outputs, expected, strict=True):
            size = float(np.max(np.abs(right), initial=1.0))
            np.testing.assert_allclose(output.array, right, rtol=1e-3, atol=1e-4 * size, err_msg=artifact.variant)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 8))])
def test_a_random_group_gives_what_the_reference_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8, 300))
def test_many_random_groups_give_what_the_reference_gives(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)
