"""What core and plugins exchange: values and protocols, no behaviour of core's own."""

from collage_core.contract.artifact import (
    Artifact,
    BlobCache,
    BoundCall,
    BuildContext,
    Json,
    Kernel,
    ReentrantKernel,
    Requirement,
    RunContext,
    SizedKernel,
    workspace_of,
)
from collage_core.contract.attribution import LibraryStep, attributed
from collage_core.contract.buffer import ALIGNMENT_BYTES, DEVICE_ALIGNMENT_BYTES, Buffer, buffer_over
from collage_core.contract.copy_figures import CopyFigures
from collage_core.contract.cost import INVALID, UNMEASURED, Cost, Unmeasured, checked_cost
from collage_core.contract.device import Device
from collage_core.contract.device_provider import DEVICE_ENTRY_POINT_GROUP, DeviceProvider, LibraryFamily
from collage_core.contract.device_stream import DeviceGraph, DeviceMemory, DeviceStream, Event, OpenDevice
from collage_core.contract.function import KernelFunction, content_hash
from collage_core.contract.garbage_collection import uncollected
from collage_core.contract.host import Host
from collage_core.contract.lower_precision import PRECISIONS, in_precision, out_of_range
from collage_core.contract.measurement import Block, Measurement, Protocol
from collage_core.contract.profile import KernelProfile, ProfiledPart, UnattributedTime
from collage_core.contract.runner import RUNNER_ENTRY_POINT_GROUP, Job, JobDone, OpenRunner, Runner, RunnerHost
from collage_core.contract.support import Obstacle, Supported, Unsupported
from collage_core.contract.target import Joins, Target, TargetSpelling, split_targets
from collage_core.contract.weights import Weights, converted, weight_named
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

__all__ = [
    "ALIGNMENT_BYTES",
    "DEVICE_ALIGNMENT_BYTES",
    "DEVICE_ENTRY_POINT_GROUP",
    "INVALID",
    "PRECISIONS",
    "RUNNER_ENTRY_POINT_GROUP",
    "UNMEASURED",
    "Artifact",
    "BlobCache",
    "Block",
    "BoundCall",
    "Buffer",
    "BuildContext",
    "CopyFigures",
    "Cost",
    "Device",
    "DeviceGraph",
    "DeviceMemory",
    "DeviceProvider",
    "DeviceStream",
    "Event",
    "Host",
    "Job",
    "JobDone",
    "Joins",
    "Json",
    "Kernel",
    "KernelFunction",
    "KernelProfile",
    "LibraryFamily",
    "LibraryStep",
    "Measurement",
    "Obstacle",
    "OpenDevice",
    "OpenRunner",
    "ProfiledPart",
    "Protocol",
    "ReentrantKernel",
    "Requirement",
    "RunContext",
    "Runner",
    "RunnerHost",
    "SizedKernel",
    "Supported",
    "Target",
    "TargetSpelling",
    "TensorSpec",
    "UnattributedTime",
    "Unmeasured",
    "Unsupported",
    "ValueKind",
    "Weights",
    "attributed",
    "buffer_over",
    "checked_cost",
    "content_hash",
    "converted",
    "in_precision",
    "out_of_range",
    "split_targets",
    "uncollected",
    "weight_named",
    "workspace_of",
]
