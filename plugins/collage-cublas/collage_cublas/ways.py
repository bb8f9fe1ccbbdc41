"""How a product of float32 is made in a target's `precision`, and what that takes besides the product.

A lower precision of 16 bits can be had in two ways, each with sums, bias, residual and result in float32 (NVIDIA's
cuBLAS documentation, the table of types of `cublasLtMatmul`, and `cublasComputeType_t`). Neither is always the faster
one, so both are offered as variants:

- `cast`: both factors are held in 16 bits. A weight is converted once, when it is loaded, so that half as much of it is
  read in each run. An input is rounded into the kernel's workspace before the product, by a kernel of its own.
- `fast`: both factors are float32, and the library is allowed to round them itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from collage_cublas.library import Compute, DataType


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """One way to multiply.

    Attributes:
        name: Begins the names of its variants; empty where there is one way only.
        factors: What both factors are held in; None for what the model has them in.
        compute: How products are rounded before they are summed.
    """

    name: str
    factors: DataType | None
    compute: Compute


WAYS: Mapping[str, tuple[Way, ...]] = MappingProxyType(
    {
        "": (Way("", None, Compute.F32),),
        "tf32": (Way("", None, Compute.TF32),),
        "fp16": (Way("cast", DataType.R_16F, Compute.F32), Way("fast", None, Compute.FAST_16F)),
        "bf16": (Way("cast", DataType.R_16BF, Compute.F32), Way("fast", None, Compute.FAST_16BF)),
    }
)
"""By what the option `precision` of a target says."""
