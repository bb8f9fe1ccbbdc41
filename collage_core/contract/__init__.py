"""What core and plugins exchange: values only, no behaviour of core's own."""

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
from collage_core.contract.buffer import ALIGNMENT_BYTES, DEVICE_ALIGNMENT_BYTES, Buffer, buffer_over
from collage_core.contract.copy_figures import CopyFigures
from collage_core.contract.cost import INVALID, UNMEASURED, Cost, Unmeasured, checked_cost
from collage_core.contract.device import Device
from collage_core.contract.function import KernelFunction, content_hash
from collage_core.contract.host import Host
from collage_core.contract.lower_precision import PRECISIONS, in_precision, out_of_range
from collage_core.contract.measurement import Measurement, Protocol
from collage_core.contract.support import Obstacle, Supported, Unsupported
from collage_core.contract.target import Joins, Target, TargetSpelling, split_targets
from collage_core.contract.weights import Weights, converted, weight_named
from collage_core.ir.values.tensor_spec import TensorSpec, ValueKind

__all__ = [
    "ALIGNMENT_BYTES",
    "DEVICE_ALIGNMENT_BYTES",
    "INVALID",
    "PRECISIONS",
    "UNMEASURED",
    "Artifact",
    "BlobCache",
    "BoundCall",
    "Buffer",
    "BuildContext",
    "CopyFigures",
    "Cost",
    "Device",
    "Host",
    "Joins",
    "Json",
    "Kernel",
    "KernelFunction",
    "Measurement",
    "Obstacle",
    "Protocol",
    "ReentrantKernel",
    "Requirement",
    "RunContext",
    "SizedKernel",
    "Supported",
    "Target",
    "TargetSpelling",
    "TensorSpec",
    "Unmeasured",
    "Unsupported",
    "ValueKind",
    "Weights",
    "buffer_over",
    "checked_cost",
    "content_hash",
    "converted",
    "in_precision",
    "out_of_range",
    "split_targets",
    "weight_named",
    "workspace_of",
]
