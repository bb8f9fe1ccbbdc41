"""Running partitioned models: memory, kernels, sessions and the package format."""

from collage_core.runtime.bound_run import BoundRun
from collage_core.runtime.executable import Executable
from collage_core.runtime.launching import BoundStep, DeviceWork, Does, Launch
from collage_core.runtime.load import load, loader, opener
from collage_core.runtime.loading import Load, LoweredAgain, Relower
from collage_core.runtime.package import Package, export_model, load_package, save_package
from collage_core.runtime.profiling import Profile, StepProfile
from collage_core.runtime.session import NodeArg, Session

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
    "opener",
    "save_package",
]
