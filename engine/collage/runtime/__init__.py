"""Running partitioned models: memory, kernels and sessions; `collage.runtime.package` has the file format."""

from collage.runtime.bound_run import BoundRun
from collage.runtime.executable import Executable
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Does, Launch
from collage.runtime.kernels.loading import Load, LoweredAgain, Relower
from collage.runtime.load import loader
from collage.runtime.profiling import Profile, StepProfile
from collage.runtime.session import NodeArg

__all__ = [
    "BoundRun",
    "BoundStep",
    "DeviceWork",
    "Does",
    "Executable",
    "Launch",
    "Load",
    "LoweredAgain",
    "NodeArg",
    "Profile",
    "Relower",
    "StepProfile",
    "loader",
]
