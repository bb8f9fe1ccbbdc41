"""BERT (1810.04805) with its pooler."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.torch_zoo import BERT_VOCABULARY
from benchmarks.models.torch_zoo.attention import attend

EPSILON = 1e-12


class Layer(nn.Module):
    """One layer; each half is added to its input, and the sum is normalised."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.norm_1 = nn.LayerNorm(width, eps=EPSILON)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_2 = nn.LayerNorm(width, eps=EPSILON)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Map [batch, tokens, width] to the same shape."""
        mixed = attend(self.query(x), self.key(x), self.value(x), self.heads, mask)
        x = self.norm_1(x + self.out(mixed))
        return self.norm_2(x + self.narrow(functional.gelu(self.wide(x))))


class Bert(nn.Module):
    """Embeddings, layers, pooler."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12, positions: int = 512) -> None:
        super().__init__()
        self.words = nn.Embedding(BERT_VOCABULARY, width)
        self.positions = nn.Embedding(positions, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Map ids, mask and segments, each int64 [batch, tokens], to [batch, tokens, width] and [batch, width]."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.norm(self.words(input_ids) + self.positions(places) + self.segments(token_type_ids))
        seen = attention_mask[:, None, None, :] > 0
        for layer in self.layers:
            x = layer(x, seen)
        return x, torch.tanh(self.pooler(x[:, 0]))


def bert_base() -> Bert:
    """Build BERT with 12 layers of width 768."""
    return Bert()
