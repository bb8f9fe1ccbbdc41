"""Activations at the end of a fused graph: the patterns models use, and the cuDNN node for each.

Meanings are those of `cudnnPointwiseMode_t` (NVIDIA's cuDNN backend documentation).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from collage_core.contract import Json, Unsupported
from collage_core.patterns import Match, NodeContext, Pattern, is_constant, is_op
from collage_core.patterns.library.activations import gelu_pattern, quick_gelu_pattern, silu_pattern
from collage_core.patterns.library.epilogue import Activation


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A node of a cuDNN graph with one tensor input.

    Attributes:
        kind: Method of `pygraph`; its tensor argument is `input`.
        attributes: Its numeric arguments.
    """

    kind: str
    attributes: Mapping[str, Json] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Form:
    """An activation.

    Attributes:
        pattern: In the form the shared builders take.
        node: Returns its node, given a match that captured its result as `activation`; or why cuDNN has none.
    """

    pattern: Activation
    node: Callable[[Match], Node | Unsupported]


def _clip(of: Pattern) -> Pattern:
    """Clip with its bounds as operands, as from opset 11 on, or as attributes."""
    bounds = (is_constant().named("least"), is_constant().named("most"))
    return is_op("Clip")(of, *bounds) | is_op("Clip")(of)


def _clipped(match: Match) -> Node | Unsupported:
    node = _operator(match, "Clip")
    if "most" in match.captures:
        least, most = (float(match.constant(name).reshape(())) for name in ("least", "most"))  # type: ignore[union-attr]
    else:
        least, most = float(node.attribute("min", float("-inf"))), float(node.attribute("max", float("inf")))
    if not 0 == least < most < float("inf"):
        return Unsupported(f"it clips to [{least:g}, {most:g}]; a ReLU's lower bound is 0 and its upper one finite")
    return Node("relu", {"upper_clip": most})


def _leaky(match: Match) -> Node:
    return Node("leaky_relu", {"negative_slope": float(_operator(match, "LeakyRelu").attribute("alpha", 0.01))})


def _elu(match: Match) -> Node | Unsupported:
    alpha = float(_operator(match, "Elu").attribute("alpha", 1.0))
    return Node("elu") if alpha == 1.0 else Unsupported(f"its Elu has alpha {alpha:g}; the frontend's has 1")


def _operator(match: Match, op_type: str) -> NodeContext:
    return next(node for node in match.contexts if node.op_type == op_type)


def _plain(kind: str, **attributes: Json) -> Callable[[Match], Node]:
    return lambda match: Node(kind, attributes)


ACTIVATIONS: Mapping[str, Form] = MappingProxyType(
    {
        "gelu": Form(functools.partial(gelu_pattern, approximate="none"), _plain("gelu")),
        "gelu_tanh": Form(functools.partial(gelu_pattern, approximate="tanh"), _plain("gelu_approx_tanh")),
        "silu": Form(silu_pattern, _plain("swish", swish_beta=1.0)),
        "quick_gelu": Form(quick_gelu_pattern, _plain("swish", swish_beta=1.702)),
        "clip": Form(_clip, _clipped),
        "relu": Form("Relu", _plain("relu")),
        "leaky_relu": Form("LeakyRelu", _leaky),
        "elu": Form("Elu", _elu),
        "sigmoid": Form("Sigmoid", _plain("sigmoid")),
        "softplus": Form("Softplus", _plain("softplus")),
        "tanh": Form("Tanh", _plain("tanh")),
    }
)
"""Activations by name, those of several operators first."""
