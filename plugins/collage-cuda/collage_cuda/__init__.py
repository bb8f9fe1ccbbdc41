"""NVIDIA's GPUs as devices of Collage, and what its plugins for them share."""

from collage_cuda.activation import Activation
from collage_cuda.contexts import Contexts, DeviceArray, Launch, PrimaryContexts
from collage_cuda.error_codes import cuda_error
from collage_cuda.gpus import (
    OLDEST_DRIVERS,
    TENSOR_CORES,
    capability,
    cuda_majors,
    driver_problem,
    gpu_targets,
    usable_gpus,
    wheel_driver,
)

__all__ = [
    "OLDEST_DRIVERS",
    "TENSOR_CORES",
    "Activation",
    "Contexts",
    "DeviceArray",
    "Launch",
    "PrimaryContexts",
    "capability",
    "cuda_error",
    "cuda_majors",
    "driver_problem",
    "gpu_targets",
    "usable_gpus",
    "wheel_driver",
]
