"""The two editions of TensorRT that share one API, and what differs between them."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from typing import Any

from collage_core.contract import Device
from collage_cuda import wheel_driver


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """One edition of TensorRT.

    Attributes:
        toolchain: Name of its toolchain.
        title: Display name.
        modules: Possible names of its module, the usual one first.
        distribution: Name of the distribution of its bindings, with `{}` for the major version of CUDA.
        install: Distribution to install.
        ahead_of_time: Whether it builds for a device that need not be present, one of those it lists by compute
            capability. The other edition builds for the current device, by trying kernels on it.
        int8: First compute capability for which it multiplies 8-bit integers.
    """

    toolchain: str
    title: str
    modules: tuple[str, ...]
    distribution: str
    install: str
    ahead_of_time: bool
    int8: tuple[int, int]

    def find(self) -> Any:
        """Import the edition's module.

        Raises:
            ImportError: If it is not installed, cannot be loaded, or has no builder, as the runtime-only wheels.
        """
        installed = [name for name in self.modules if importlib.util.find_spec(name) is not None]
        if not installed:
            raise ImportError(f"there is no module {' or '.join(self.modules)}")
        library = importlib.import_module(installed[0])
        if not hasattr(library, "Builder") or not hasattr(library, "OnnxParser"):
            raise ImportError(f"{installed[0]} can only run engines, not build them")
        return library

    def oldest_driver(self) -> int | None:
        """Return the oldest branch of NVIDIA's driver that runs the installed edition; None if unknown."""
        return wheel_driver(self.distribution)


TENSORRT = Edition(
    toolchain="tensorrt",
    title="TensorRT",
    modules=("tensorrt",),
    distribution="tensorrt_cu{}_bindings",
    install="pip install 'collage-tensorrt[tensorrt]'",
    ahead_of_time=False,
    int8=(7, 5),  # tensor cores multiply int8 from 7.2 on (CUDA C++ Programming Guide, `wmma`), GPUs in cards from 7.5
)

RTX = Edition(
    toolchain="tensorrt_rtx",
    title="TensorRT for RTX",
    modules=("tensorrt_rtx", "tensorrt_rtx_bindings"),
    distribution="tensorrt_rtx_cu{}_bindings",
    install="pip install 'collage-tensorrt[rtx]'",
    ahead_of_time=True,
    # Its support matrix lists int8 for weights alone, from 8.6. Engines that 1.7.1 builds for 8.0 and newer hold
    # products of int8 and int8; for 7.5 it builds no MatMul of float32, and none behind a QuantizeLinear.
    int8=(8, 0),
)


def listed(library: Any, device: Device) -> Any:
    """Return a library's enum member for a device with ahead-of-time builds; None if it has none."""
    return library.ComputeCapability.__members__.get(f"SM{device.compute_capability.replace('.', '')}")


def capabilities(library: Any) -> list[str]:
    """Compute capabilities a library builds for ahead of time, as people write them."""
    names = [name for name in library.ComputeCapability.__members__ if name.startswith("SM")]
    return sorted((f"{name[2:-1]}.{name[-1]}" for name in names), key=lambda each: tuple(map(int, each.split("."))))
