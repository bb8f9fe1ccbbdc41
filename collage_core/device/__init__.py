"""Devices beside the CPU: their memory, their streams and their clocks. CUDA by CuPy, where it is installed."""

from collage_core.device.contexts import Contexts, DeviceArray, Launch, PrimaryContexts
from collage_core.device.cuda_errors import cuda_error
from collage_core.device.garbage_collection import uncollected
from collage_core.device.opening import Devices, buffer_on, is_lost, open_device, placed_on, why_unusable
from collage_core.device.protocol import DeviceGraph, DeviceMemory, DeviceStream, Event, OpenDevice

__all__ = [
    "Contexts",
    "DeviceArray",
    "DeviceGraph",
    "DeviceMemory",
    "DeviceStream",
    "Devices",
    "Event",
    "Launch",
    "OpenDevice",
    "PrimaryContexts",
    "buffer_on",
    "cuda_error",
    "is_lost",
    "open_device",
    "placed_on",
    "uncollected",
    "why_unusable",
]
