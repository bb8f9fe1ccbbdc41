"""Build engines: the builder's settings, and its timing cache."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir

from collage_core.contract import BlobCache, Device, TensorSpec
from collage_tensorrt.editions import Edition, listed
from collage_tensorrt.messages import trouble, why
from collage_tensorrt.network import Network, read


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Settings of an engine build.

    Attributes:
        device: Device that will run the engine.
        level: `builder_optimization_level`, 0 to 5.
        workspace_bytes: Largest scratch memory of one layer.
        tf32: Whether float32 products may be rounded to TF32.
    """

    device: Device
    level: int
    workspace_bytes: int
    tf32: bool


def build_engine(
    edition: Edition,
    library: Any,
    model: onnx_ir.Model,
    inputs: Sequence[TensorSpec],
    settings: Settings,
    blobs: BlobCache,
) -> bytes | str:
    """Build an engine of a model, or return why there is none.

    Args:
        edition: Edition of TensorRT.
        library: Module of the edition.
        model: The model to build.
        inputs: Specs of its inputs, whose shapes are static.
        settings: Build settings.
        blobs: Caches the timings of kernels, so that the next engine does not repeat them.

    Raises:
        DeviceError: If the device has too little memory, or is lost.
    """
    read_model = read(library, model)
    if isinstance(read_model, str):
        return read_model
    config = read_model.builder.create_builder_config()
    config.builder_optimization_level = settings.level
    config.set_memory_pool_limit(library.MemoryPoolType.WORKSPACE, settings.workspace_bytes)
    # on unless it is turned off, and then a float32 model is not computed in float32
    (config.set_flag if settings.tf32 else config.clear_flag)(library.BuilderFlag.TF32)
    if user_allocates := library.BuilderFlag.__members__.get("REQUIRE_USER_ALLOCATION"):
        # What would have to allocate while it runs fails now instead of when it is captured. TensorRT for RTX has it.
        config.set_flag(user_allocates)
    if edition.ahead_of_time:
        config.num_compute_capabilities = 1
        config.set_compute_capability(listed(library, settings.device), 0)
    _add_profile(read_model, config, inputs)
    timings = None if edition.ahead_of_time else _Timings.of(config, blobs, settings.device)
    plan = read_model.builder.build_serialized_network(read_model.network, config)
    if plan is None:
        if error := trouble(settings.device.name, read_model.log):
            raise error
        return why(read_model.log, "no engine was built, and the library does not say why")
    if timings is not None:
        timings.keep()
    return bytes(plan)


def _add_profile(network: Network, config: Any, inputs: Sequence[TensorSpec]) -> None:
    """Fix a model's dynamic dimensions to the kernel's shapes, which are those of `--input-shapes`.

    Prepared models have none, and such a network needs no profile: this is for functions from other sources.
    """
    if not network.free:
        return
    shapes: Mapping[str, tuple[int, ...]] = {spec.name: spec.static_shape for spec in inputs}
    profile = network.builder.create_optimization_profile()
    for name in network.free:
        profile.set_shape(name, shapes[name], shapes[name], shapes[name])
    config.add_optimization_profile(profile)


@dataclasses.dataclass(slots=True)
class _Timings:
    """The library's timing cache, stored in the toolchain's blobs; a no-op for RTX (from 1.2), which times nothing."""

    config: Any
    cache: Any
    blobs: BlobCache
    key: str

    @classmethod
    def of(cls, config: Any, blobs: BlobCache, device: Device) -> _Timings:
        key = f"timings/{device.fingerprint}"
        cache = config.create_timing_cache(blobs.get(key) or b"")
        if not config.set_timing_cache(cache, False):  # of another version or device, or damaged
            cache = config.create_timing_cache(b"")
            config.set_timing_cache(cache, False)
        return cls(config, cache, blobs, key)

    def keep(self) -> None:
        """Store the current timings, combined with those that others have stored meanwhile."""
        meanwhile = self.blobs.get(self.key)
        if meanwhile:
            self.cache.combine(self.config.create_timing_cache(meanwhile), False)
        data = bytes(self.cache.serialize())
        if data != meanwhile:
            self.blobs.put(self.key, data)
