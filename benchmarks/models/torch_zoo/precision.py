"""A module in a precision: its weights and what it computes are, what comes in and goes out stays float32."""

from __future__ import annotations

import torch
from torch import nn


class InPrecision(nn.Module):
    """Casts what comes in, and casts back what comes out, as every caller has to.

    So inputs and outputs are the same arrays for every contender, and NumPy knows their dtype.

    Args:
        module: Converted in place.
        dtype: A floating-point one by its name: `"float32"`, `"float16"`, `"bfloat16"`, `"float64"`.
    """

    def __init__(self, module: nn.Module, dtype: str) -> None:
        super().__init__()
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.module = module.to(self.dtype)
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """As the module's, always a tuple."""
        found = self.module(*(_cast(each, self.dtype) for each in tensors))
        results = found if isinstance(found, tuple) else (found,)
        return tuple(_cast(each, torch.float32) for each in results)


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # an export would keep a cast to the dtype it has already
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != dtype else tensor
