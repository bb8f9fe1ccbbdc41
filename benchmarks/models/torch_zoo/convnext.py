"""ConvNeXt (2201.03545)."""

from __future__ import annotations

import torch
from torch import nn

EPSILON = 1e-6


class ChannelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of [batch, channels, height, width]."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=EPSILON)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise over the channels; the shape is unchanged."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """A depthwise convolution of 7 x 7, a norm, and two products over the channels, added to the input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=EPSILON)
        self.wide, self.narrow = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gelu = nn.GELU()
        self.scale = nn.Parameter(torch.ones(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise over the channels; the shape is unchanged."""
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(self.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


class ConvNext(nn.Module):
    """Four stages, each after a norm and a convolution that halves the image."""

    def __init__(self, depths: tuple[int, ...], widths: tuple[int, ...], classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, stride=4), ChannelNorm(widths[0])]
        for number, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            if number:
                layers += [ChannelNorm(widths[number - 1]), nn.Conv2d(widths[number - 1], width, 2, stride=2)]
            layers += [Block(width) for _ in range(depth)]
        self.features = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(widths[-1], eps=EPSILON)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, height, width] to [batch, classes]."""
        return self.head(self.norm(self.features(pixels).mean((2, 3))))


def convnext_t() -> ConvNext:
    """Build ConvNeXt-T, the smallest model of the paper."""
    return ConvNext((3, 3, 9, 3), (96, 192, 384, 768))
