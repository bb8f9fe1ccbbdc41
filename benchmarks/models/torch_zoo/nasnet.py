"""NASNet-A (1707.07012, figure 4 and appendix A), without the auxiliary head, which only training uses.

TensorFlow pads unevenly where a stride does not divide; here both sides get the same padding, so sizes and
work are those of the original. Its pooling of 1 x 1 with a stride, before a convolution of 1 x 1, is that
convolution with the stride.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

EPSILON = 1e-3


def norm(channels: int) -> nn.BatchNorm2d:
    """Build a batch normalisation with the original's epsilon."""
    return nn.BatchNorm2d(channels, eps=EPSILON)


class Separable(nn.Sequential):
    """ReLU, depthwise and pointwise convolution, normalisation, all twice; only the first has the stride."""

    def __init__(self, inside: int, outside: int, kernel: int, stride: int = 1) -> None:
        layers: list[nn.Module] = []
        for channels, step in ((inside, stride), (outside, 1)):
            layers += [
                nn.ReLU(),
                nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                nn.Conv2d(channels, outside, 1, bias=False),
                norm(outside),
            ]
        super().__init__(*layers)


class Squeeze(nn.Sequential):
    """ReLU, a convolution of 1 x 1 and normalisation."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__(nn.ReLU(), nn.Conv2d(inside, outside, 1, bias=False), norm(outside))


class Halve(nn.Module):
    """Every second pixel in each direction, once from the first and once from the second, half the channels each."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.relu = nn.ReLU()
        self.even = nn.Conv2d(inside, outside // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inside, outside - outside // 2, 1, 2, bias=False)
        self.norm = norm(outside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [batch, inside, height, width] to [batch, outside, height / 2, width / 2], rounded up."""
        x = self.relu(x)
        shifted = functional.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat((self.even(x), self.odd(shifted)), dim=1))


def average(x: torch.Tensor, stride: int = 1) -> torch.Tensor:
    """Compute the mean over 3 x 3 pixels, over fewer at an edge."""
    return functional.avg_pool2d(x, 3, stride, 1, count_include_pad=False)


def largest(x: torch.Tensor, stride: int) -> torch.Tensor:
    """Compute the maximum over 3 x 3 pixels."""
    return functional.max_pool2d(x, 3, stride, 1)


class Cell(nn.Module):
    """Common start of both cells: the last cell's result, and the previous one's brought to the same shape.

    Args:
        before: Channels of the previous cell's result.
        inside: Channels of the last cell's result.
        filters: Channels of each half.
        halve: Whether the previous result has twice the side.
        first: Whether there is no previous cell; the last result then takes its place unchanged.
    """

    def __init__(self, before: int, inside: int, filters: int, halve: bool = False, first: bool = False) -> None:
        super().__init__()
        self.squeeze = Squeeze(inside, filters)
        self.adjust: nn.Module = nn.Identity()
        if halve:
            self.adjust = Halve(before, filters)
        elif before != filters and not first:
            self.adjust = Squeeze(before, filters)
        self.adjusted = before if first else filters


class Normal(Cell):
    """The cell that keeps the side; its output has six times the filters."""

    def __init__(self, before: int, inside: int, filters: int, halve: bool) -> None:
        super().__init__(before, inside, filters, halve)
        self.left_1, self.right_1 = Separable(filters, filters, 5), Separable(filters, filters, 3)
        self.left_2, self.right_2 = Separable(filters, filters, 5), Separable(filters, filters, 3)
        self.left_5 = Separable(filters, filters, 3)

    def forward(self, before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Map [batch, inside, height, width] to [batch, 6 filters, height, width]."""
        h, p = self.squeeze(last), self.adjust(before)
        mean = average(p)
        parts = (
            p,
            self.left_1(h) + self.right_1(p),
            self.left_2(p) + self.right_2(p),
            average(h) + p,
            mean + mean,
            self.left_5(h) + h,
        )
        return torch.cat(parts, dim=1)


class Reduction(Cell):
    """The cell that halves the side; its output has four times the filters."""

    def __init__(self, before: int, inside: int, filters: int, halve: bool = False, first: bool = False) -> None:
        super().__init__(before, inside, filters, halve, first)
        adjusted = self.adjusted
        self.left_1, self.right_1 = Separable(filters, filters, 5, 2), Separable(adjusted, filters, 7, 2)
        self.right_2, self.right_3 = Separable(adjusted, filters, 7, 2), Separable(adjusted, filters, 5, 2)
        self.left_4 = Separable(filters, filters, 3)

    def forward(self, before: torch.Tensor, last: torch.Tensor) -> torch.Tensor:
        """Map [batch, inside, height, width] to [batch, 4 filters, height / 2, width / 2], rounded up."""
        h, p = self.squeeze(last), self.adjust(before)
        first = self.left_1(h) + self.right_1(p)
        second = largest(h, 2) + self.right_2(p)
        third = average(h, 2) + self.right_3(p)
        fourth = average(first) + second
        fifth = self.left_4(first) + largest(h, 2)
        return torch.cat((second, third, fourth, fifth), dim=1)


class NasNet(nn.Module):
    """A stem of two reductions, then three stages of normal cells with a reduction between them.

    Args:
        repeats: Normal cells of a stage.
        filters: Channels of each half of a cell in the first stage; they double per stage.
        stem: Channels of the first convolution.
        skip: Whether a reduction's own input is dropped and the result before it is passed to the next cell.
        classes: Number of classes.
    """

    def __init__(self, repeats: int, filters: int, stem: int, skip: bool, classes: int = 1000) -> None:
        super().__init__()
        self.skip = skip
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), norm(stem))
        cells: list[Cell] = [Reduction(stem, stem, filters // 4, first=True)]
        cells.append(Reduction(stem, filters, filters // 2, halve=True))
        before, last, width = filters, 2 * filters, filters
        for stage in range(3):
            if stage:
                width *= 2
                cells.append(Reduction(before, last, width))
                before, last = before if skip else last, 4 * width
            for number in range(repeats):
                cells.append(Normal(before, last, width, halve=not number))
                before, last = last, 6 * width
        self.cells = nn.ModuleList(cells)
        self.relu = nn.ReLU()
        self.head = nn.Linear(last, classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Map [batch, 3, height, width] to [batch, classes]."""
        before = last = self.stem(pixels)
        for number, cell in enumerate(self.cells):
            skipped = self.skip and number > 1 and isinstance(cell, Reduction)
            before, last = before if skipped else last, cell(before, last)
        return self.head(self.relu(last).mean((2, 3)))


def mobile() -> NasNet:
    """Build NASNet-A (4 @ 1056)."""
    return NasNet(repeats=4, filters=1056 // 24, stem=32, skip=False)


def large() -> NasNet:
    """Build NASNet-A (6 @ 4032)."""
    return NasNet(repeats=6, filters=4032 // 24, stem=96, skip=True)
