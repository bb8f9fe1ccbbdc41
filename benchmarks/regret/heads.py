"""Heads: raw camera images, token ids, point clouds, and inputs that somebody else prepared."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx import TensorProto

from benchmarks.models.entry import Inputs, images
from benchmarks.models.graph import GraphWriter
from benchmarks.regret.feature import Feature, Head, Kind, shaped

VOCABULARY = 8000
SIZES = (256, 320, 384)
TOKENS = (256, 384)
PILLARS, POINTS, CANVAS = 4000, 16, 128


def _shape(model: onnx.ModelProto, index: int = 0) -> tuple[int, ...]:
    return tuple(dim.dim_value for dim in model.graph.input[index].type.tensor_type.shape.dim)


def _noise(model: onnx.ModelProto, seed: int) -> Inputs:
    shape = _shape(model)
    name = model.graph.input[0].name
    generator = np.random.default_rng(seed)
    if len(shape) > 3:
        return images(name, *shape)(generator)
    return {name: generator.standard_normal(shape, dtype=np.float32)}


def _pixels(model: onnx.ModelProto, seed: int) -> Inputs:
    """Generate a uint8 image [1, H, W, 3] with detail at three scales."""
    _, height, width, channels = _shape(model)
    [values] = images("image", 1, channels, height, width)(np.random.default_rng(seed)).values()
    pixels = np.clip(values * 48 + 128, 0, 255).astype(np.uint8)
    return {"image": np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))}


def _ids(model: onnx.ModelProto, seed: int) -> Inputs:
    return {"ids": np.random.default_rng(seed).integers(0, VOCABULARY, _shape(model))}


def _points(model: onnx.ModelProto, seed: int) -> Inputs:
    """Generate points [P, N, 9] of pillars, and the cell of each pillar [P, 1], no cell twice."""
    generator = np.random.default_rng(seed)
    points = generator.standard_normal(_shape(model), dtype=np.float32)
    cells = generator.permutation(CANVAS * CANVAS)[:PILLARS, None]
    return {"points": points, "cells": cells}


def image(g: GraphWriter, draw: random.Random) -> Feature:
    """Append nothing: a normalised image."""
    size = draw.choice(SIZES)
    return _input(g, "image", "image", (1, 3, size, size))


def camera(g: GraphWriter, draw: random.Random) -> Feature:
    """Append what a camera's uint8 image takes: cast, normalise, channels first, resize."""
    size = draw.choice(SIZES)
    height, width = draw.choice([(360, 480), (480, 640)])
    x = g.op("Cast", g.input("image", [1, height, width, 3], TensorProto.UINT8), to=TensorProto.FLOAT)
    x = g.op("Sub", x, g.constant(np.array([123.7, 116.3, 103.5], dtype=np.float32), "mean"))
    x = g.op("Mul", x, g.constant(np.array([0.0171, 0.0175, 0.0174], dtype=np.float32), "scale"))
    x = g.op("Transpose", x, perm=[0, 3, 1, 2], channels=3)
    sizes = g.ints(1, 3, size, size)
    x = g.op("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="half_pixel")
    return shaped(g, "image", x)


def pillars(g: GraphWriter, draw: random.Random) -> Feature:
    """Append what PointPillars (1812.05784) does to points: a layer, the maximum over a pillar, a scatter to a map."""
    width = draw.choice([32, 48, 64])
    points = g.input("points", [PILLARS, POINTS, 9])
    cells = g.input("cells", [PILLARS, 1], TensorProto.INT64)
    x = g.op("Relu", g.op("MatMul", points, g.weight("matmul_weight", 9, width)))
    x = g.op("ReduceMax", x, axes=[1], keepdims=0)
    empty = g.constant(np.zeros((CANVAS * CANVAS, width), dtype=np.float32), "canvas")
    x = g.op("Transpose", g.op("ScatterND", empty, cells, x), perm=[1, 0])
    x = g.op("Reshape", x, g.ints(1, width, CANVAS, CANVAS), channels=width)
    return shaped(g, "image", x)


def embedding(g: GraphWriter, draw: random.Random) -> Feature:
    """Append a look-up of token ids and of their positions."""
    width, tokens = draw.choice([256, 384]), draw.choice(TOKENS)
    x = g.op("Gather", g.weight("table", VOCABULARY, width), g.input("ids", [1, tokens], TensorProto.INT64), axis=0)
    return shaped(g, "tokens", g.op("Add", x, g.weight("positions", 1, tokens, width)))


def frames(g: GraphWriter, draw: random.Random) -> Feature:
    """Append nothing: frames of features, as of a spectrogram."""
    return _input(g, "tokens", "frames", (1, draw.choice(TOKENS), draw.choice([128, 256, 384])))


def clip(g: GraphWriter, draw: random.Random) -> Feature:
    """Append nothing: a grey clip."""
    size = draw.choice([40, 48])
    return _input(g, "clip", "clip", (1, 1, draw.choice([12, 16]), size, size * 2))


def _input(g: GraphWriter, kind: Kind, name: str, shape: tuple[int, ...]) -> Feature:
    return Feature(kind=kind, tensor=g.input(name, shape), shape=shape)


HEADS = (
    Head(name="", makes="image", operators=0, build=image, inputs=_noise),
    Head(name="camera", makes="image", operators=5, build=camera, inputs=_pixels),
    Head(name="pillars", makes="image", operators=5, build=pillars, inputs=_points, pixels=False),
    Head(name="embedding", makes="tokens", operators=2, build=embedding, inputs=_ids),
    Head(name="", makes="tokens", operators=0, build=frames, inputs=_noise),
    Head(name="", makes="clip", operators=0, build=clip, inputs=_noise),
)
