"""Activations that end a kernel: how models write them, and which functor of `epilogue.cuh` they are."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from collage_core.patterns import Match, NodeContext, Pattern, is_constant, is_op
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.epilogue import Activation

Functor = tuple[str, float, float]
"""A functor and its two numbers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """An activation.

    Attributes:
        pattern: As the shared builders take it; None for none at all.
        functor: What a match comes to.
    """

    pattern: Activation | None
    functor: Callable[[Match], Functor]


def _clip(of: Pattern) -> Pattern:
    """Clip with its bounds as operands, as from opset 11 on, or as attributes."""
    least, most = is_constant().named("least"), is_constant().named("most")
    return is_op("Clip")(of, least, most) | is_op("Clip")(of, least) | is_op("Clip")(of)


def _clipped(match: Match) -> Functor:
    node = _operator(match, "Clip")
    widest = float(np.finfo(np.float32).max)  # what ONNX's own defaults are
    bounds = {"least": node.attribute("min", -widest), "most": node.attribute("max", widest)}
    for name in bounds:
        if (given := match.constant(name)) is not None:
            bounds[name] = given.reshape(())
    return "Clip", float(bounds["least"]), float(bounds["most"])


def _operator(match: Match, op_type: str) -> NodeContext:
    return next(node for node in match.contexts if node.op_type == op_type)


def _plain(functor: str, first: float = 0.0) -> Callable[[Match], Functor]:
    return lambda match: (functor, first, 0.0)


def _by_alpha(functor: str, op_type: str, default: float) -> Callable[[Match], Functor]:
    return lambda match: (functor, float(_operator(match, op_type).attribute("alpha", default)), 0.0)


ACTIVATIONS: Mapping[str, Form] = MappingProxyType(
    {
        "gelu": Form(functools.partial(gelu_pattern, approximate="none"), _plain("Gelu")),
        "gelu_tanh": Form(functools.partial(gelu_pattern, approximate="tanh"), _plain("GeluTanh")),
        "silu": Form(silu_pattern, _plain("Swish", 1.0)),
        "quick_gelu": Form(quick_gelu_pattern, _plain("Swish", 1.702)),
        "clip": Form(_clip, _clipped),
        "relu": Form("Relu", _plain("Relu")),
        "leaky_relu": Form("LeakyRelu", _by_alpha("LeakyRelu", "LeakyRelu", 0.01)),
        "elu": Form("Elu", _by_alpha("Elu", "Elu", 1.0)),
        "sigmoid": Form("Sigmoid", _plain("Sigmoid")),
        "softplus": Form("Softplus", _plain("Softplus")),
        "tanh": Form("Tanh", _plain("Tanh")),
        "": Form(None, _plain("Identity")),
    }
)
"""By name, those of several operators first; the last is none."""
