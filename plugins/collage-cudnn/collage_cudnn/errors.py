"""Turn failures of cuDNN into errors that tell whether the graph, the device or something else is to blame.

The frontend's own classes do not tell: it raises `cudnnGraphNotSupportedError` for every plan that cannot be
made, also when a kernel could not be loaded (`GRAPH_EXECUTION_PLAN_CREATION_FAILED` in its headers; seen with
version 1.26). So the name of the backend's status decides; its thousands digit is the category (`cudnnStatus_t`
in cudnn_graph.h).
"""

from __future__ import annotations

import re

from collage_core.errors import DeviceError, DeviceMemoryError, DriverTooOldError, KernelError, LoweringError

_STATUS = re.compile(r"(?<!Reason): CUDNN_STATUS_([A-Z_]+)")
"""A returned status. Text after `Reason:` is a condition of the library's source, which may name other statuses."""

_MEMORY = ("ALLOC_FAILED", "ALLOCATION_FAILED")
_BROKEN = ("EXECUTION_FAILED", "INTERNAL_ERROR")
_LACKING = ("NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",)
"""Status for a missing NVRTC or driver.

Engines that compile at run time return it only where one is missing (seen with 9.20.0 and the properties of an
H100).
"""
_OF_A_GRAPH = ("NOT_SUPPORTED", "BAD_PARAM")
_OF_A_DRIVER = ("NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", "NOT_SUPPORTED_INCOMPATIBLE_CUDART")
_OF_AN_INSTALLATION = "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"


class CudnnError(LoweringError, KernelError):
    """A call failed for a reason other than the graph; the message names the operation and quotes the library.

    Core checks afterwards whether the device still answers, since the library's message may hide that it does not.
    """


class NotSupportedError(CudnnError):
    """This version of the library does not support the graph on this device."""


def cudnn_error(device: str, text: str, *, refused: bool = False) -> CudnnError | DeviceError:
    """Return the error to raise for a message of the library.

    Args:
        device: The device's name.
        text: The message. Its first line names the failed call; the others are a log of all attempts, in which
            lack of memory, of NVRTC or the driver and failures of the device are significant, but not what
            single engines do not support.
        refused: Whether the frontend reports the graph as not supported; believed unless a status says otherwise.

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
