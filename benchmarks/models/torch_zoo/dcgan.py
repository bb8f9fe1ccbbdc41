"""The generator of DCGAN (1511.06434), with the 4 x 4 kernels of its successors and of Relay's test model."""

from __future__ import annotations

import torch
from torch import nn


class Generator(nn.Module):
    """Noise to an image of 64 x 64; each transposed convolution doubles the side.

    Args:
        noise: Size of the noise vector.
        width: Channels of the last hidden layer; the first has eight times as many, 1024 in the paper.
    """

    def __init__(self, noise: int = 100, width: int = 128) -> None:
        super().__init__()
        channels = (8 * width, 4 * width, 2 * width, width)
        layers: list[nn.Module] = []
        inside = noise
        for number, outside in enumerate(channels):
            stride, padding = (2, 1) if number else (1, 0)
            layers.append(nn.ConvTranspose2d(inside, outside, 4, stride, padding, bias=False))
            layers += [nn.BatchNorm2d(outside), nn.ReLU()]
            inside = outside
        layers += [nn.ConvTranspose2d(inside, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.layers = nn.Sequential(*layers)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        """Map [batch, noise, 1, 1] to [batch, 3, 64, 64]."""
        return self.layers(noise)


def generator() -> Generator:
    """Build the generator with the paper's width."""
    return Generator()
