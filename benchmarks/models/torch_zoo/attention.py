"""Blocks that the transformers share."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    heads: int,
    mask: torch.Tensor | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Compute scaled dot-product attention with PyTorch's own operator, so that PyTorch may use its fused kernels.

    Args:
        query: [batch, tokens, width]; so are `key` and `value`.
        key: See `query`.
        value: See `query`.
        heads: Number of heads; divides the width.
        mask: Boolean, true where a key is visible; broadcastable to [batch, heads, tokens, tokens].
        causal: Whether a token attends only to tokens up to itself.

    Returns:
        [batch, tokens, width].
    """
    batch, tokens, width = query.shape
    split = (batch, tokens, heads, width // heads)
    q, k, v = (each.reshape(split).transpose(1, 2) for each in (query, key, value))
    if torch.onnx.is_in_onnx_export() and (causal or mask is not None):
        # of a boolean mask the exporter makes one in float32, in which all that follows is then computed
        seen = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).tril() if mask is None else mask
        mask, causal = torch.zeros_like(seen, dtype=q.dtype).masked_fill(~seen, -torch.inf), False
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)
    return mixed.transpose(1, 2).reshape(batch, tokens, width)


class PreNormBlock(nn.Module):
    """A pre-norm layer, as in ViT and GPT-2: each half normalises its input, not its output.

    Args:
        width: Elements of a token.
        heads: Heads of the attention.
        epsilon: Epsilon of both norms.
        approximate: Approximation of GELU, `"none"` or `"tanh"`.
        causal: See `attend`.
    """

    def __init__(self, width: int, heads: int, epsilon: float, approximate: str, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm_1 = nn.LayerNorm(width, eps=epsilon)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm_2 = nn.LayerNorm(width, eps=epsilon)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, tokens, width] to the same shape."""
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, dim=-1)
        x = x + self.out(attend(q, k, v, self.heads, causal=self.causal))
        return x + self.mlp(self.norm_2(x))
