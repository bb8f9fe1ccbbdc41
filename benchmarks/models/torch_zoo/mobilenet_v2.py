"""MobileNetV2 (1801.04381)."""

from __future__ import annotations

import torch
from torch import nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Table 2 of the paper: expansion, channels, repeats, stride of the first."""


def convolution(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Build a convolution with its normalisation and ReLU6."""
    return [
        nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU6(),
    ]


class InvertedResidual(nn.Module):
    """Expand, filter each channel, project without an activation; added to the input where the shape is kept."""

    def __init__(self, inside: int, outside: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inside * expansion
        layers = convolution(inside, wide, 1) if expansion > 1 else []
        layers += convolution(wide, wide, 3, stride, groups=wide)
        layers += [nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside)]
        self.layers = nn.Sequential(*layers)
        self.adds = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, inside, height, width] to [batch, outside, height / stride, width / stride]."""
        return x + self.layers(x) if self.adds else self.layers(x)


class MobileNetV2(nn.Module):
    """The network of width 1."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers, width = convolution(3, 32, 3, 2), 32
        for expansion, channels, repeats, stride in STAGES:
            for number in range(repeats):
                layers.append(InvertedResidual(width, channels, 1 if number else stride, expansion))
                width = channels
        self.features = nn.Sequential(*layers, *convolution(width, 1280, 1))
        self.head = nn.Linear(1280, classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, height, width] to [batch, classes]."""
        return self.head(self.features(pixels).mean((2, 3)))


def mobilenet_v2() -> MobileNetV2:
    """Build MobileNetV2 with 1000 classes."""
    return MobileNetV2()
