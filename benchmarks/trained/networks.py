"""The networks as PyTorch modules: uint8 pixels or int64 tokens to logits."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from benchmarks.models.torch_zoo.attention import PreNormBlock
from benchmarks.trained.letters import LETTERS
from benchmarks.trained.votes import LENGTH, SYMBOLS, VOCABULARY, values


class Residual(nn.Module):
    """Two convolutions of 3 x 3 whose result is added to their input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = convolution(channels, channels), convolution(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, channels, height, width] to the same shape."""
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Build a convolution of 3 x 3 with BatchNormalization, which an export merges into it."""
    kernel = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
    return nn.Sequential(kernel, nn.BatchNorm2d(outputs))


class Cnn(nn.Module):
    """Six convolutions, two of them in a residual block: on 24 x 24 pixels, 12 x 12 and 6 x 6."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            convolution(1, 16),
            nn.ReLU(),
            convolution(16, 32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            Residual(32),
            convolution(32, 64, stride=2),
            nn.ReLU(),
            convolution(64, 64),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(64, len(LETTERS)),
        )

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map uint8 [batch, 1, SIDE, SIDE] to logits [batch, letters]."""
        logits: torch.Tensor = self.layers(pixels.float() / 255)
        return logits

    def loss(self, pixels: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Compute the loss of training."""
        return functional.cross_entropy(self(pixels), label)


class Transformer(nn.Module):
    """A pre-norm encoder of two blocks of width 64, whose mean over tokens is classified."""

    def __init__(self, width: int = 64, heads: int = 4, blocks: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(waves(LENGTH, width))
        self.blocks = nn.Sequential(*(PreNormBlock(width, heads, 1e-5, "none", causal=False) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, SYMBOLS)
        self.value = nn.Linear(width, 3)  # for training only

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, LENGTH] to logits [batch, SYMBOLS]."""
        logits: torch.Tensor = self.head(self.encoded(tokens).mean(dim=1))
        return logits

    def encoded(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map int64 [batch, LENGTH] to [batch, LENGTH, width]."""
        encoded: torch.Tensor = self.norm(self.blocks(self.words(tokens) + self.positions))
        return encoded

    def loss(self, tokens: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        """Compute the loss of training: that of the winner, and that of what each token counts.

        The winner alone teaches the network very slowly to look at the token before each.
        """
        encoded = self.encoded(tokens)
        counted = torch.from_numpy(values(tokens.numpy()) + 1)
        winner = functional.cross_entropy(self.head(encoded.mean(dim=1)), label)
        return winner + functional.cross_entropy(self.value(encoded).flatten(0, 1), counted.flatten())


def waves(length: int, width: int) -> torch.Tensor:
    """Return the sinusoidal encodings of positions (1706.03762), [length, width], from which training starts."""
    rates = 10000 ** (-torch.arange(0, width, 2) / width)
    angles = torch.arange(length)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)
