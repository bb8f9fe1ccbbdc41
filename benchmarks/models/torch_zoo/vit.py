"""Vision transformer (2010.11929)."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.models.torch_zoo.attention import PreNormBlock


class Vit(nn.Module):
    """Patches, a class token, layers, and the logits of the class token."""

    def __init__(
        self, size: int = 224, patch: int = 16, width: int = 768, heads: int = 12, layers: int = 12, classes: int = 1000
    ) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + (size // patch) ** 2, width))
        self.layers = nn.Sequential(*(PreNormBlock(width, heads, 1e-6, "none", causal=False) for _ in range(layers)))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, size, size] to [batch, classes]."""
        x = self.patches(pixels).flatten(2).transpose(1, 2)
        x = torch.cat((self.token.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.layers(x))[:, 0])


def vit_b_16() -> Vit:
    """Build ViT-B/16: 12 layers of width 768 on patches of 16 x 16."""
    return Vit()
