"""GPT-2 (Radford et al., 2019) on a prompt: one pass over all its tokens, and the logits of the next one."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.torch_zoo import GPT2_VOCABULARY
from benchmarks.models.torch_zoo.attention import PreNormBlock


class Gpt2(nn.Module):
    """Embeddings, layers, and the token embedding reused as the head."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, positions: int = 1024) -> None:
        super().__init__()
        self.words = nn.Embedding(GPT2_VOCABULARY, width)
        self.positions = nn.Embedding(positions, width)
        self.layers = nn.Sequential(*(PreNormBlock(width, heads, 1e-5, "tanh", causal=True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-5)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        """Map ids, int64 [batch, tokens], to the next token's logits, [batch, words]."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.layers(self.words(input_ids) + self.positions(places))
        return functional.linear(self.norm(x[:, -1]), self.words.weight)


def gpt2_small() -> Gpt2:
    """Build BERT with 12 layers of width 768."""
    return Gpt2()
