"""Translate CUDA's error codes into core's errors, for the runtime and the driver, which share their numbers.

The numbers are those of `cudaError_t` in driver_types.h; `CUresult` in cuda.h agrees wherever both have a code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collage_core.errors import (
    DeviceCapabilityError,
    DeviceCaptureError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    DriverTooOldError,
)

INSTALL: Final = "Install `collage-cuda[cuda13]`, or `collage-cuda[cuda12]` where the driver is one of CUDA 12"
"""Advice if CuPy is missing, or built for another CUDA version than the driver's."""

_ERRORS: Final[Mapping[int, type[DeviceError]]] = {  # cudaError_t in driver_types.h
    2: DeviceMemoryError,  # cudaErrorMemoryAllocation
    35: DriverTooOldError,  # cudaErrorInsufficientDriver
    803: DriverTooOldError,  # cudaErrorSystemDriverMismatch
    804: DriverTooOldError,  # cudaErrorCompatNotSupportedOnDevice
    222: DriverTooOldError,  # cudaErrorUnsupportedPtxVersion
    98: DeviceCapabilityError,  # cudaErrorInvalidDeviceFunction
    209: DeviceCapabilityError,  # cudaErrorNoKernelImageForDevice
    801: DeviceCapabilityError,  # cudaErrorNotSupported
    100: DeviceUnavailableError,  # cudaErrorNoDevice
    101: DeviceUnavailableError,  # cudaErrorInvalidDevice
    46: DeviceUnavailableError,  # cudaErrorDevicesUnavailable: in exclusive use elsewhere
    802: DeviceUnavailableError,  # cudaErrorSystemNotReady
    # after these every later call in the process fails
    214: DeviceLostError,  # cudaErrorECCUncorrectable
    220: DeviceLostError,  # cudaErrorNvlinkUncorrectable
    226: DeviceLostError,  # cudaErrorContained
    700: DeviceLostError,  # cudaErrorIllegalAddress
    702: DeviceLostError,  # cudaErrorLaunchTimeout
    709: DeviceLostError,  # cudaErrorContextIsDestroyed
    710: DeviceLostError,  # cudaErrorAssert
    714: DeviceLostError,  # cudaErrorHardwareStackError
    715: DeviceLostError,  # cudaErrorIllegalInstruction
    716: DeviceLostError,  # cudaErrorMisalignedAddress
    717: DeviceLostError,  # cudaErrorInvalidAddressSpace
    718: DeviceLostError,  # cudaErrorInvalidPc
    719: DeviceLostError,  # cudaErrorLaunchFailure
    721: DeviceLostError,  # cudaErrorTensorMemoryLeak
    810: DeviceLostError,  # cudaErrorMpsClientTerminated
    911: DeviceLostError,  # cudaErrorExternalDevice
    **dict.fromkeys(range(900, 909), DeviceCaptureError),  # cudaErrorStreamCapture..., cudaErrorCapturedEvent
}


def cuda_error(device: str, status: int, text: str) -> DeviceError:
    """Create the error for a CUDA error code; a plain `DeviceError` for codes without a specific class.

    Args:
        device: The device's name.
        status: The error code.
        text: The failed call and CUDA's error message.

    Examples:
        >>> cuda_error("cuda:0", 2, "cuMemAlloc failed with 2: out of memory")
        DeviceMemoryError('device cuda:0: cuMemAlloc failed with 2: out of memory. Give the model smaller inputs, ...
    """
    kind = _ERRORS.get(status, DeviceError)
    return kind(device, text, INSTALL if kind is DriverTooOldError else "")
