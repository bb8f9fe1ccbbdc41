"""Devices beside the CPU: their memory, their streams and their clocks. CUDA by CuPy, where it is installed."""

from collage_core.device.opening import Devices, open_device
from collage_core.device.protocol import DeviceGraph, DeviceMemory, DeviceStream, Event, OpenDevice

__all__ = [
    "DeviceGraph",
    "DeviceMemory",
    "DeviceStream",
    "Devices",
    "Event",
    "OpenDevice",
    "open_device",
]
