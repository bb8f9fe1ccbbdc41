"""Activations at the end of a kernel: the patterns models use, and the functor of `epilogue.cuh` for each."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from collage_core.patterns import Match, NodeContext, Pattern, is_constant, is_op
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.epilogue import Activation


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """An activation.

    Attributes:
        pattern: In the form the shared builders take; None for no activation.
        functor: Name of the functor in `epilogue.cuh`.
        numbers: Returns the functor's two parameters for a match.
    """

    pattern: Activation | None
    functor: str
    numbers: Callable[[Match], tuple[float, float]] = lambda match: (0.0, 0.0)


def _clip(of: Pattern) -> Pattern:
    """Clip with its bounds as operands, as from opset 11 on, or as attributes."""
    least, most = is_constant().named("least"), is_constant().named("most")
    return is_op("Clip")(of, least, most) | is_op("Clip")(of, least) | is_op("Clip")(of)


def _bounds(match: Match) -> tuple[float, float]:
    node = _operator(match, "Clip")
    widest = float(np.finfo(np.float32).max)  # what ONNX's own defaults are
    bounds = {"least": node.attribute("min", -widest), "most": node.attribute("max", widest)}
    for name in bounds:
        if (given := match.constant(name)) is not None:
            bounds[name] = given.reshape(())
    return float(bounds["least"]), float(bounds["most"])


def _operator(match: Match, op_type: str) -> NodeContext:
    return next(node for node in match.contexts if node.op_type == op_type)


def _first(number: float) -> Callable[[Match], tuple[float, float]]:
    return lambda match: (number, 0.0)


def _alpha(op_type: str, default: float) -> Callable[[Match], tuple[float, float]]:
    return lambda match: (float(_operator(match, op_type).attribute("alpha", default)), 0.0)


ACTIVATIONS: Mapping[str, Form] = MappingProxyType(
    {
        "gelu": Form(functools.partial(gelu_pattern, approximate="none"), "Gelu"),
        "gelu_tanh": Form(functools.partial(gelu_pattern, approximate="tanh"), "GeluTanh"),
        "silu": Form(silu_pattern, "Swish", _first(1.0)),
        "quick_gelu": Form(quick_gelu_pattern, "Swish", _first(1.702)),
        "clip": Form(_clip, "Clip", _bounds),
        "relu": Form("Relu", "Relu"),
        "leaky_relu": Form("LeakyRelu", "LeakyRelu", _alpha("LeakyRelu", 0.01)),
        "elu": Form("Elu", "Elu", _alpha("Elu", 1.0)),
        "sigmoid": Form("Sigmoid", "Sigmoid"),
        "softplus": Form("Softplus", "Softplus"),
        "tanh": Form("Tanh", "Tanh"),
        "": Form(None, "Identity"),
    }
)
"""Activations by name, those of several operators first; the last entry is no activation."""

FUNCTORS = tuple(dict.fromkeys(form.functor for form in ACTIVATIONS.values()))
"""All functors a kernel may be compiled with."""
