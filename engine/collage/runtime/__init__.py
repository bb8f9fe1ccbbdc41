"""Running partitioned models: memory, kernels, sessions and the package format."""

from collage.runtime.bound_run import BoundRun
from collage.runtime.executable import Executable
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Does, Launch
from collage.runtime.kernels.loading import Load, LoweredAgain, Relower
from collage.runtime.load import load, loader
from collage.runtime.package import Package, export_model, load_package, save_package
from collage.runtime.profiling import Profile, StepProfile
from collage.runtime.session import NodeArg, Session

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
    "Package",
    "Profile",
    "Relower",
    "Session",
    "StepProfile",
    "export_model",
    "load",
    "load_package",
    "loader",
    "save_package",
]
