"""Ways to multiply float32 in a target's `precision`, and the work each needs besides the product.

A lower precision of 16 bits can be had in two ways, each with sums, bias, residual and result in float32
(NVIDIA's cuBLAS documentation, the table of types of `cublasLtMatmul`, and `cublasComputeType_t`). Neither is
always faster, so both are offered as variants:

- `cast`: both factors are held in 16 bits. A weight is converted once, when it is loaded, which halves the bytes
  read in each run. An input is rounded into the kernel's workspace by a separate kernel before the product.
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
        name: Prefix of the names of its variants; empty where there is only one way.
        factors: Type of both factors; None for that of the model.
        compute: How factors are rounded before products are summed.
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
"""Ways by value of a target's option `precision`."""
