"""Seeded weights with which a module's activations keep their scale, and the file that stores them.

Convolutions and products are scaled by their fan-in; BatchNormalization gets the statistics of one batch of
the timed inputs, as training would have left it. Without that, half precision overflows or sees only zeros,
and errors are meaningless.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.models.__main__ import write

CALIBRATION_BATCH = 4


def initialise(module: nn.Module, seed: int) -> nn.Module:
    """Give every parameter its values, in place.

    Args:
        module: Made of PyTorch's own layers; a parameter of any other is an embedding or, if named `scale`, a factor.
        seed: With a parameter's name it determines its values.

    Returns:
        The same module.
    """
    for name, layer in module.named_modules():
        for own, parameter in layer.named_parameters(recurse=False):
            generator = np.random.default_rng([seed, zlib.crc32(f"{name}.{own}".encode())])
            parameter.data = torch.from_numpy(_draw(layer, own, tuple(parameter.shape), generator))
    return module


def _draw(layer: nn.Module, name: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray[Any, Any]:
    def normal(scale: float) -> np.ndarray[Any, Any]:
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    norm = isinstance(layer, nn.LayerNorm | nn.BatchNorm2d | nn.BatchNorm3d)
    if name == "scale" or (norm and name == "weight"):
        return generator.uniform(0.7, 1.3, shape).astype(np.float32)
    if norm:
        return normal(0.2)
    if name == "bias":
        return normal(0.1)
    if isinstance(layer, nn.ConvTranspose2d):
        # of a kernel's elements those that meet one pixel of the result are as many as the strides say
        return normal(math.sqrt(2 * math.prod(layer.stride) / (shape[0] * math.prod(shape[2:]))))
    if isinstance(layer, nn.Conv2d | nn.Conv3d):
        return normal(math.sqrt(2 / math.prod(shape[1:])))
    if isinstance(layer, nn.Linear):
        return normal(math.sqrt(1 / shape[1]))
    return normal(0.5)


def calibrate(module: nn.Module, *inputs: torch.Tensor) -> nn.Module:
    """Give every BatchNormalization the statistics of one batch, in place.

    Args:
        module: In evaluation mode, in which it is left.
        *inputs: The batch.

    Returns:
        The same module.
    """
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d | nn.BatchNorm3d)]
    if not norms:
        return module
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # the plain mean of all batches seen
        layer.train()
    with torch.no_grad():
        module(*inputs)
    return module.eval()


def save(path: Path, module: nn.Module) -> None:
    """Write parameters and statistics, by name."""
    arrays = {name: value.numpy() for name, value in module.state_dict().items()}
    write(path, lambda stream: np.savez(stream, **arrays))


def load(path: Path, module: nn.Module) -> nn.Module:
    """Read what `save` wrote, in place.

    Returns:
        The same module.

    Raises:
        RuntimeError: If it is of another module.
    """
    with np.load(path) as archive:
        module.load_state_dict({name: torch.from_numpy(archive[name]) for name in archive.files})
    return module
