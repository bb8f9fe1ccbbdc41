"""Blocks in the many ways in which people write them in PyTorch, and things that look like them and are none.

Each part gives back what it is given in shape, so that parts make a chain. `PARTS` is the list that is counted from:
which sort each part is follows from what its authors call it, not from how it is exported.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional
from transformers.activations import ACT2FN
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

WIDTH, HEADS, TOKENS = 32, 4, 6
Tensor = torch.Tensor


class Written(torch.nn.Module):
    """A function with a scale and a bias of its own."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))
        self.bias = torch.nn.Parameter(torch.zeros(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, self.weight, self.bias)


class Attends(torch.nn.Module):
    """A function of queries, keys and values, each [1, heads, tokens, size]."""

    def __init__(self, function: Callable[[Tensor, Tensor, Tensor], Tensor], key_heads: int = HEADS) -> None:
        super().__init__()
        self.function = function
        self.heads = (HEADS, key_heads, key_heads)
        self.projections = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH // HEADS * each) for each in self.heads)

    def forward(self, x: Tensor) -> Tensor:
        split = [
            project(x).view(1, TOKENS, heads, WIDTH // HEADS).transpose(1, 2)
            for project, heads in zip(self.projections, self.heads, strict=True)
        ]
        return self.function(*split).transpose(1, 2).reshape(1, TOKENS, WIDTH)


class Torchs(torch.nn.Module):
    """PyTorch's own layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return result


def causal() -> Tensor:
    return torch.ones(TOKENS, TOKENS).tril().bool()


def written_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As in Google's BERT and in ConvNeXt: the deviation is written twice."""
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return weight * ((x - mean) / torch.sqrt(variance + 1e-6)) + bias


def channels_first(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """As ConvNeXt's, on the axis of the channels of an image."""
    x = x.transpose(1, 2).reshape(1, WIDTH, 2, TOKENS // 2)
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).pow(2).mean(1, keepdim=True)
    x = (x - mean) / torch.sqrt(variance + 1e-6)
    x = weight[:, None, None] * x + bias[:, None, None]
    return x.reshape(1, WIDTH, TOKENS).transpose(1, 2)


def divided(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in BERT before operators for attention: the scale is a quotient, and comes after the product."""
    return (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def chosen(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in GPT-2: the mask chooses between a score and the smallest number; the softmax is in float32."""
    scores = q @ k.transpose(-1, -2) * 0.25
    scores = torch.where(causal(), scores, torch.finfo(scores.dtype).min)
    return functional.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype) @ v


def filled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in many: `masked_fill` with minus infinity."""
    scores = (q * 0.25) @ k.transpose(-1, -2)
    return scores.masked_fill(~causal(), -math.inf).softmax(-1) @ v


def in_three_axes(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As in BART and OPT before: batch and heads are one axis."""
    flat = [each.reshape(-1, TOKENS, WIDTH // HEADS) for each in (q, k, v)]
    mixed = torch.bmm(torch.bmm(flat[0] * 0.25, flat[1].transpose(1, 2)).softmax(-1), flat[2])
    return mixed.view(1, HEADS, TOKENS, WIDTH // HEADS)


def repeated(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Groups of heads, each key and value copied."""
    k, v = (each.repeat_interleave(2, dim=1) for each in (k, v))
    return (q @ k.transpose(2, 3) * 0.25).softmax(-1) @ v


def wrong_axis(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.transpose(-1, -2)).softmax(-2) @ v


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention without the product of queries and keys (Katharopoulos et al., 2020)."""
    return q.softmax(-1) @ (k.transpose(-1, -2).softmax(-1) @ v)


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v)


def behind(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


PARTS: dict[str, dict[str, tuple[str, Callable[[], torch.nn.Module]]]] = {
    "activations": {
        **{name: ("gelu", lambda name=name: ACT2FN[name]) for name in ("gelu", "gelu_python")},
        **{
            name: ("gelu_tanh", lambda name=name: ACT2FN[name])
            for name in ("gelu_new", "gelu_fast", "gelu_accurate", "gelu_pytorch_tanh")
        },
        "quick_gelu": ("quick_gelu", lambda: ACT2FN["quick_gelu"]),
        "silu": ("silu", lambda: ACT2FN["silu"]),
        **{
            name: ("none", lambda name=name: ACT2FN[name]) for name in ("mish", "hardswish", "relu2", "laplace", "tanh")
        },
    },
    "normalisations": {
        "layer_norm": ("layer_norm", lambda: torch.nn.LayerNorm(WIDTH)),
        "layer_norm_plain": ("layer_norm", lambda: torch.nn.LayerNorm(WIDTH, elementwise_affine=False)),
        "layer_norm_of_two_axes": ("layer_norm_of_two_axes", lambda: torch.nn.LayerNorm([TOKENS, WIDTH])),
        "layer_norm_written": ("layer_norm", lambda: Written(written_norm)),
        "layer_norm_channels_first": ("layer_norm_of_channels", lambda: Written(channels_first)),
        "rms_norm_llama": ("rms_norm", lambda: LlamaRMSNorm(WIDTH)),
        "rms_norm_t5": ("rms_norm", lambda: T5LayerNorm(WIDTH)),
        "group_norm": ("none", lambda: torch.nn.GroupNorm(2, TOKENS)),
        "centred": ("none", lambda: Written(lambda x, w, b: (x - x.mean(-1, keepdim=True)) * w + b)),
        "unit_length": ("none", lambda: Written(lambda x, w, b: functional.normalize(x, dim=-1) * w)),
    },
    "attentions": {
        **{each.__name__: ("attention", lambda each=each: Attends(each)) for each in (plain, behind, divided)},
        **{each.__name__: ("attention", lambda each=each: Attends(each)) for each in (chosen, filled, in_three_axes)},
        "repeated": ("attention", lambda: Attends(repeated, HEADS // 2)),
        "multihead_attention": ("attention", Torchs),
        **{each.__name__: ("none", lambda each=each: Attends(each)) for each in (wrong_axis, linear)},
    },
}
