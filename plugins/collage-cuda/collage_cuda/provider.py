"""The provider of devices `cuda`, which the entry point refers to. Importing this loads no library of NVIDIA's."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Final

from collage_core.contract import Device, DeviceStream, LibraryFamily
from collage_cuda.error_codes import INSTALL
from collage_cuda.management import nvidia_devices

LIBRARY_FAMILIES: Final = (
    LibraryFamily(stem="cublas", title="cuBLAS", distributions=("nvidia",)),
    LibraryFamily(stem="cudart", title="CUDA runtime", distributions=("nvidia",)),
    # opens parts it finds, and does without the others: pytorch/pytorch, issue 188892
    LibraryFamily(stem="cudnn", title="cuDNN", distributions=("nvidia",), opens_parts=True),
    LibraryFamily(stem="nvinfer", title="TensorRT", distributions=("tensorrt",)),
)
"""NVIDIA's libraries of which there may be several versions on a machine. Of the driver's own there is always one."""


class CudaProvider:
    """NVIDIA's GPUs; see `DeviceProvider`."""

    library_families: Sequence[LibraryFamily] = LIBRARY_FAMILIES

    def devices(self) -> tuple[Device, ...]:
        """See `DeviceProvider.devices`; by NVIDIA's management library."""
        return nvidia_devices()

    def open(self, name: str) -> DeviceStream:
        """See `DeviceProvider.open`; by CuPy."""
        # what needs CuPy is imported only where a device is wanted
        from collage_cuda.stream import CudaStream

        return CudaStream.open(name)

    def why_unusable(self, name: str) -> str:
        """See `DeviceProvider.why_unusable`."""
        if importlib.util.find_spec("cupy") is None:
            return f"CuPy is not installed. {INSTALL}"
        return ""


provider = CudaProvider()
