"""ResNets of 50 layers (1512.03385): with grouped convolutions (ResNeXt, 1611.05431), and for video (1711.09577)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

_CONVOLUTION: dict[int, Any] = {2: nn.Conv2d, 3: nn.Conv3d}
_NORM: dict[int, Any] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_POOL: dict[int, Any] = {2: nn.MaxPool2d, 3: nn.MaxPool3d}
STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))


class Bottleneck(nn.Module):
    """Narrow, filter, widen to four times; added to the input, which is projected where the shape changes.

    Args:
        dimensions: Dimensions of the image: 2, or 3 with time.
        inside: Input channels.
        planes: A quarter of the output channels.
        width: Channels in between.
        stride: Stride of the filter.
        groups: Groups of the filter.
    """

    def __init__(self, dimensions: int, inside: int, planes: int, width: int, stride: int, groups: int) -> None:
        super().__init__()
        convolution, norm, outside = _CONVOLUTION[dimensions], _NORM[dimensions], 4 * planes
        self.layers = nn.Sequential(
            convolution(inside, width, 1, bias=False),
            norm(width),
            nn.ReLU(),
            convolution(width, width, 3, stride, 1, groups=groups, bias=False),
            norm(width),
            nn.ReLU(),
            convolution(width, outside, 1, bias=False),
            norm(outside),
        )
        self.relu = nn.ReLU()
        self.short: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.short = nn.Sequential(convolution(inside, outside, 1, stride, bias=False), norm(outside))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, inside, ...] to [batch, 4 planes, ... / stride]."""
        return self.relu(self.layers(x) + self.short(x))


class ResNet(nn.Module):
    """The network.

    Args:
        dimensions: 2 for images; 3 for video, where the first convolution keeps the number of frames.
        groups: Groups of the middle convolution of each block.
        share: Channels in a block for each one of `STAGES`.
        classes: Number of classes.
    """

    def __init__(self, dimensions: int, groups: int = 1, share: int = 1, classes: int = 1000) -> None:
        super().__init__()
        stride = (2, 2) if dimensions == 2 else (1, 2, 2)
        layers: list[nn.Module] = [
            _CONVOLUTION[dimensions](3, 64, 7, stride, 3, bias=False),
            _NORM[dimensions](64),
            nn.ReLU(),
            _POOL[dimensions](3, 2, 1),
        ]
        channels = 64
        for number, (planes, depth) in enumerate(STAGES):
            for place in range(depth):
                step = 2 if number and not place else 1
                layers.append(Bottleneck(dimensions, channels, planes, planes * share, step, groups))
                channels = 4 * planes
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(channels, classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, ...] to [batch, classes]."""
        return self.head(self.features(pixels).flatten(2).mean(2))


def resnext50() -> ResNet:
    """Build ResNeXt-50 32x4d: 32 groups of 4 channels and more."""
    return ResNet(2, groups=32, share=2)


def resnet3d_50() -> ResNet:
    """Build a ResNet-50 for video with the classes of Kinetics-400."""
    return ResNet(3, classes=400)
