"""Derive the computation of an `attention_pattern` match."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import onnx_ir

from collage_core.patterns import Match
from collage_core.patterns.library.attention import LEAST_MASKED

KeyLayout = Literal["heads_first", "heads_last", "transposed"]
Meaning = Literal["added", "kept_where", "masked_where"]
_KEYS: dict[str, KeyLayout] = {"k": "heads_first", "k_heads_last": "heads_last", "k_transposed": "transposed"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """One mask of an attention block.

    Attributes:
        value: The mask; it broadcasts to [..., queries, keys].
        meaning: `added` to the scores; or boolean, true for scores that count or true for scores that do not.
    """

    value: onnx_ir.Value
    meaning: Meaning


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """softmax(scale * Q K^T, masked) V.

    Attributes:
        query: Q, [..., queries, size].
        key: K, before it is copied for groups of heads. If the node that adds the axis of the copies is outside the
            match, K has that axis, as V does: [batch, heads, 1, keys, size].
        key_layout: [..., keys, size], [batch, keys, heads, size] or [..., size, keys].
        value: V, [..., keys, value size], before it is copied.
        masks: The masks, in order of application.
        scale: Factor of the scores; None if it is computed.
        groups: Number of heads of Q that share one head of K and V; None if the shapes do not determine it.
        causal: Whether later keys are known to be hidden from each query.
    """

    query: onnx_ir.Value
    key: onnx_ir.Value
    key_layout: KeyLayout
    value: onnx_ir.Value
    masks: tuple[Mask, ...]
    scale: float | None
    groups: int | None
    causal: bool


def attention_of(match: Match) -> Attention:
    """Interpret a match of `attention_pattern` made with the default patterns of Q, K and V.

    Args:
        match: The match.
    """
    name = next(each for each in _KEYS if each in match.captures)
    operator = match.node("whole") if "whole" in match.captures else None
    masks = tuple(
        Mask(value=match.captures[each], meaning=meaning)
        for each, meaning in _meanings(match)
        if each in match.captures
    )
    return Attention(
        query=match.captures["q"],
        key=match.captures[name],
        key_layout=_KEYS[name],
        value=match.captures["v"],
        masks=masks,
        scale=_scale(match) if operator is None else _operators_scale(match, operator.attribute("scale")),
        groups=_groups(match, name),
        causal=(operator is not None and bool(operator.attribute("is_causal", 0)))
        or any(_is_causal(mask) for mask in masks),
    )


def _meanings(match: Match) -> tuple[tuple[str, Meaning], ...]:
    """Return the meaning of each mask capture, in order of application.

    The operator's mask is boolean or added; a decomposed one is added, after any Where.
    """
    boolean = "mask" in match.captures and match.spec("mask").dtype == onnx_ir.DataType.BOOL
    return (
        ("kept_where", "kept_where"),
        ("masked_where", "masked_where"),
        ("mask", "kept_where" if boolean else "added"),
    )


def _scale(match: Match) -> float | None:
    scale = 1.0
    for name in ("q", "k", "scores"):
        for capture, power in ((f"{name}_factor", 1), (f"{name}_divisor", -1)):
            if capture not in match.captures:
                continue
            constant = match.constant(capture)
            if constant is None:
                return None
            scale *= float(constant.reshape(())) ** power
    return scale


def _operators_scale(match: Match, given: float | None) -> float | None:
    if given is not None:
        return given
    shape = match.spec("q").shape
    return None if shape is None or shape[-1] is None else 1 / math.sqrt(shape[-1])


def _groups(match: Match, key: str) -> int | None:
    q, k = match.spec("q").shape, match.spec(key).shape
    if k is not None and len(k) == 5:  # with the axis of the copies, which is made outside
        k = (*k[:2], *k[3:])
    if q is None or k is None or len(q) != 4 or len(k) != 4:
        return None
    heads, shared = q[1], k[2 if key == "k_heads_last" else 1]
    return None if heads is None or not shared else heads // shared


def _is_causal(mask: Mask) -> bool:
    tensor = mask.value.const_value
    if tensor is None or mask.value.producer() is not None or len(tensor.shape) < 2:
        return False
    array: np.ndarray[Any, Any] = np.asarray(tensor.numpy())
    seen = np.tri(*array.shape[-2:], dtype=np.bool_)
    if array.shape[-1] != array.shape[-2] or array.shape[-1] == 1:
        return False
    if mask.meaning == "added":
        return bool(np.all(np.where(seen, array == 0, array <= LEAST_MASKED)))
    return bool(np.all(array == (seen if mask.meaning == "kept_where" else ~seen)))
