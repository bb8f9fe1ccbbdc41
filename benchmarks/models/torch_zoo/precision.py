"""A module in a lower precision: weights and computation are converted, inputs and outputs stay float32."""

from __future__ import annotations

import torch
from torch import nn


class InPrecision(nn.Module):
    """Casts inputs to the precision of a module and its outputs back, as every caller has to.

    Inputs and outputs are therefore the same arrays for every contender, in a dtype NumPy supports.

    Args:
        module: Converted in place.
        dtype: Name of a floating-point type: `"float32"`, `"float16"`, `"bfloat16"`, `"float64"`.
    """

    def __init__(self, module: nn.Module, dtype: str) -> None:
        super().__init__()
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.module = module.to(self.dtype)
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Run the module in its precision; the results are always a tuple, cast to float32."""
        found = self.module(*(_cast(each, self.dtype) for each in tensors))
        results = found if isinstance(found, tuple) else (found,)
        return tuple(_cast(each, torch.float32) for each in results)


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # an export would keep a cast to the dtype it has already
    return tensor.to(dtype) if tensor.is_floating_point() and tensor.dtype != dtype else tensor
