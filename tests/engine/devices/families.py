"""Libraries as a provider of devices names them, without one."""

from __future__ import annotations

from collections.abc import Sequence

from collage.devices.libraries import Libraries
from collage.devices.providers import Providers
from collage_core.contract import LibraryFamily
from collage_testing.kit import FakeDevices

FAMILIES = (
    LibraryFamily(stem="cublas", title="cuBLAS", distributions=("nvidia",)),
    LibraryFamily(stem="cudart", title="CUDA runtime", distributions=("nvidia",)),
    LibraryFamily(stem="cudnn", title="cuDNN", distributions=("nvidia",), opens_parts=True),
    LibraryFamily(stem="nvinfer", title="TensorRT", distributions=("tensorrt",)),
)
LIBRARIES = Libraries(FAMILIES)


class DevicesWithLibraries(FakeDevices):
    """Fake devices whose kernels load these libraries."""

    library_families: Sequence[LibraryFamily] = FAMILIES


PROVIDERS = Providers.of({"fake": DevicesWithLibraries()})
