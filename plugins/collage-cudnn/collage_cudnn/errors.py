"""What cuDNN says when something fails, as errors: the graph, the device or something else is to blame.

The frontend's own classes do not tell: it raises `cudnnGraphNotSupportedError` for every plan that cannot be made, also
where a kernel could not be loaded (`GRAPH_EXECUTION_PLAN_CREATION_FAILED` in its headers; seen with version 1.26). So
the name of the backend's status decides, of which the thousands digit is the sort (`cudnnStatus_t` in cudnn_graph.h).
"""

from __future__ import annotations

import re

from collage_core.errors import DeviceError, DeviceMemoryError, DriverTooOldError, KernelError, LoweringError

_STATUS = re.compile(r"(?<!Reason): CUDNN_STATUS_([A-Z_]+)")
"""A status that was returned; behind `Reason:` is a condition of the source, which may name others."""

_MEMORY = ("ALLOC_FAILED", "ALLOCATION_FAILED")
_BROKEN = ("EXECUTION_FAILED", "INTERNAL_ERROR")
_LACKING = ("NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",)
"""NVRTC, or the driver: engines that compile say so where it is missing, and none where it is there (seen with 9.20.0
and the properties of an H100)."""
_OF_A_GRAPH = ("NOT_SUPPORTED", "BAD_PARAM")
_OF_A_DRIVER = ("NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", "NOT_SUPPORTED_INCOMPATIBLE_CUDART")
_OF_AN_INSTALLATION = "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"


class CudnnError(LoweringError, KernelError):
    """A call failed, for no reason that lies in the graph; the message has what failed and the library's words.

    Core asks the device afterwards whether it still answers, since the library's words may hide that it does not.
    """


class NotSupportedError(CudnnError):
    """The library has nothing for the graph on this device, and never will have in this version."""


def cudnn_error(device: str, text: str, *, refused: bool = False) -> CudnnError | DeviceError:
    """The error to raise when the library complains.

    Args:
        device: The device's name.
        text: What it says. Its first line names what failed; others are a log of all it tried, where lack of memory, of
            NVRTC or the driver and failures of the device count, but what single engines do not support does not.
        refused: Whether the frontend says that the graph is not supported; believed unless a status says otherwise.

    Examples:
        >>> cudnn_error("cuda:0", "cudnnFinalize failed, cudnn_status: CUDNN_STATUS_NOT_SUPPORTED_LAYOUT")
        NotSupportedError('cudnnFinalize failed, cudnn_status: CUDNN_STATUS_NOT_SUPPORTED_LAYOUT')
        >>> cudnn_error("cuda:0", "cudnnFinalize failed, cudnn_status: CUDNN_STATUS_EXECUTION_FAILED", refused=True)
        CudnnError('cudnnFinalize failed, cudnn_status: CUDNN_STATUS_EXECUTION_FAILED')
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it gave no reason"]
    for sort in (_MEMORY, _BROKEN, _LACKING):
        for line in lines:
            if any(word in status for status in _STATUS.findall(line) for word in sort):
                said = line if line == lines[0] else f"{lines[0]}: {line}"
                return DeviceMemoryError(device, said) if sort is _MEMORY else CudnnError(said)
    statuses = _STATUS.findall(lines[0])
    if not set(_OF_A_DRIVER).isdisjoint(statuses):
        return DriverTooOldError(device, lines[0])
    of_the_graph = all(status.startswith(_OF_A_GRAPH) for status in statuses) if statuses else refused
    lasting = of_the_graph and _OF_AN_INSTALLATION not in statuses
    return NotSupportedError(lines[0]) if lasting else CudnnError(lines[0])
