"""Running partitioned models: memory, kernels and sessions; `collage.runtime.package` has the file format."""

from collage.runtime.bound_run import BoundRun
from collage.runtime.executable import Executable
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Does, Launch
from collage.runtime.kernels.loading import Load, Lowered, Relower
from collage.runtime.kernels.reports import KernelReport, SessionReport
from collage.runtime.kernels.toolchains import loader
from collage.runtime.profiling import Profile, StepProfile
from collage.runtime.session import NodeArg

__all__ = [
    "BoundRun",
    "BoundStep",
    "DeviceWork",
    "Does",
    "Executable",
    "KernelReport",
    "Launch",
    "Load",
    "Lowered",
    "NodeArg",
    "Profile",
    "Relower",
    "SessionReport",
    "StepProfile",
    "loader",
]
