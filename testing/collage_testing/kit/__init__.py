"""The part of the kit that executes kernels, over the engine: `pip install collage-testing[kit]`.

It provides mock toolchains whose kernels run, fake devices that defer all work as long as allowed, the
conformance kit for plugins, and single kernels on a fake or a real device (see
`collage_testing.kit.device_kernels`).
"""

from typing import TYPE_CHECKING

from collage_core.late_names import late_names
from collage_testing.kit.executing_mock import ExecutingMock
from collage_testing.kit.fake_device import FakeDevice, FakeDevices, fake_providers
from collage_testing.kit.fake_hardware import FakeArray
from collage_testing.kit.fake_stream import FakeStream, stream_of

if TYPE_CHECKING:
    from collage_testing.kit.bound_kernel import BoundKernel
    from collage_testing.kit.conformance import Conformance, check_plugin
    from collage_testing.kit.contexts import build_context
    from collage_testing.kit.device_kernels import DeviceMachine

__all__ = [
    "BoundKernel",
    "Conformance",
    "DeviceMachine",
    "ExecutingMock",
    "FakeArray",
    "FakeDevice",
    "FakeDevices",
    "FakeStream",
    "build_context",
    "check_plugin",
    "fake_providers",
    "stream_of",
]

__getattr__ = late_names(
    __name__,
    {
        "BoundKernel": "bound_kernel",
        "Conformance": "conformance",
        "DeviceMachine": "device_kernels",
        "build_context": "contexts",
        "check_plugin": "conformance",
    },
)
