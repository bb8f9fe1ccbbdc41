"""Describe attention as cuDNN's node for it.

Its rules are those of the frontend's `sdpa` (`sdpa_support_surface.h` of version 1.26): 16-bit floats;
heads of a multiple of 8 elements, contiguous in memory; a mask that is added in the tensors' type, or a
causal mask.
"""

from __future__ import annotations

import onnx_ir

from collage_core.contract import Json, Unsupported
from collage_core.patterns import Match
from collage_core.patterns.library.attention_facts import Attention, Mask, attention_of
from collage_cudnn.described import Described, Drawing, common_dtype, one_result
from collage_cudnn.graph import DataType, Layout, row_major

MOST_SIZE = 256
"""Largest head on Hopper; on other devices 128 in some versions: the library refuses larger ones when queried."""


def describe_attention(match: Match, layout: Layout) -> Described | Unsupported:
    """Describe the graph of softmax(scale * Q K^T + mask) V.

    Args:
        match: Match of `attention_pattern`.
        layout: Ignored.
    """
    if (outside := one_result(match)) is not None:
        return outside
    of = attention_of(match)
    specs = {name: match.graph.spec(value) for name, value in (("q", of.query), ("k", of.key), ("v", of.value))}
    dtype = common_dtype({**specs, "result": match.graph.spec(match.value)})
    if isinstance(dtype, Unsupported):
        return dtype
    if dtype is DataType.FLOAT:
        return Unsupported("it is about float32; cuDNN's attention takes float16 and bfloat16")
    if of.scale is None:
        return Unsupported("what its scores are multiplied by is computed")
    q, v = specs["q"].static_shape, specs["v"].static_shape
    k = specs["k"].static_shape
    # heads that are copied for groups of heads come with the axis of the copies where that is made outside
    k, v = ((*each[:2], *each[3:]) if len(each) == 5 and each[2] == 1 else each for each in (k, v))
    if len(q) not in (3, 4) or len(k) != len(q) or len(v) != len(q):
        return Unsupported(f"its queries are {list(q)}; batch, heads, queries and size, or three of these, are taken")
    if len(q) == 3 and "whole" in match.captures:
        return Unsupported("its operator takes heads side by side in the last axis; four axes are taken")
    if len(q) == 3:  # batch and heads are one axis
        q, k, v = ((each[0], 1, *each[1:]) for each in (q, k, v))
    batch, heads, queries, size = q
    strides, (key_batch, key_heads, keys, key_size) = _keys(of, k)
    if (key_batch, key_size) != (batch, size) or v[:3] != (batch, key_heads, keys) or heads % key_heads:
        return Unsupported(f"its queries {list(q)}, keys {list(k)} and values {list(v)} do not go together")
    if size % 8 or v[3] % 8 or max(size, v[3]) > MOST_SIZE:
        return Unsupported(f"its heads have {size} and {v[3]} elements; multiples of 8 up to {MOST_SIZE} are taken")
    drawing = Drawing(match, dtype)
    kept = (batch, key_heads, keys, size)
    tensors = {
        "q": drawing.input("q", q, row_major(q), of.query),
        "k": drawing.input("k", kept, row_major(kept) if strides[-1] != 1 else strides, of.key, stored=strides),
        "v": drawing.input("v", v, row_major(v), of.value),
    }
    attributes: dict[str, Json] = {"attn_scale": of.scale}
    masks = list(of.masks)
    operator_causal = _is_causal_operator(match)
    if of.causal and (operator_causal or (len(masks) == 1 and queries == keys)):
        if operator_causal and masks:
            return Unsupported("it has a mask beside the diagonal; cuDNN takes one of the two")
        if operator_causal and queries != keys:
            return Unsupported(f"it is causal over {queries} queries and {keys} keys, whose diagonal starts elsewhere")
        attributes["causal"] = True
    elif masks:
        bias = _bias(match, masks, dtype, (batch, heads, queries, keys))
        if isinstance(bias, Unsupported):
            return bias
        tensors["bias"] = drawing.input("bias", bias, row_major(bias), masks[0].value)
    out = (batch, heads, queries, v[3])
    drawing.add("sdpa", out, row_major(out), tensors, attributes=attributes)
    return drawing.done(out)


def _keys(of: Attention, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, int, int, int]]:
    """Return the strides of the keys as `[batch, heads, keys, size]`, and these extents."""
    if of.key_layout == "heads_last":
        batch, keys, heads, size = shape
        return (keys * heads * size, size, heads * size, 1), (batch, heads, keys, size)
    if of.key_layout == "transposed":
        batch, heads, size, keys = shape
        return (heads * size * keys, size * keys, 1, keys), (batch, heads, keys, size)
    batch, heads, keys, size = shape
    return row_major(shape), (batch, heads, keys, size)


def _is_causal_operator(match: Match) -> bool:
    return "whole" in match.captures and bool(match.node("whole").attribute("is_causal", 0))


def _bias(match: Match, masks: list[Mask], dtype: DataType, scores: tuple[int, ...]) -> tuple[int, ...] | Unsupported:
    """Return the extents of the one added mask, `[batch, heads, queries, keys]`, each the scores' or 1."""
    if len(masks) > 1:
        return Unsupported("it is masked twice; cuDNN adds one mask")
    [mask] = masks
    spec = match.graph.spec(mask.value)
    if mask.meaning != "added" or spec.dtype == onnx_ir.DataType.BOOL:
        return Unsupported("its mask chooses by truth values; cuDNN adds one of numbers")
    if spec.dtype != dtype.value or spec.shape is None or None in spec.shape:
        return Unsupported(f"its mask is {spec.dtype}, not of the type of what is masked, or of unknown shape")
    given = spec.static_shape
    if len(given) == 3 and len(match.spec("q").static_shape) == 3:
        given = (given[0], 1, *given[1:])
    padded = (1,) * (4 - len(given)) + tuple(given)
    if any(extent not in (1, whole) for extent, whole in zip(padded, scores, strict=True)):
        return Unsupported(f"its mask {list(given)} does not broadcast to the scores {list(scores)}")
    return padded
