"""The hooks of the toolchain `openvino`. Importing this imports no OpenVINO."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from collage_core.contract import (
    Artifact,
    BoundCall,
    BuildContext,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    KernelProfile,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_openvino.kernel import load
from collage_openvino.lower import lower
from collage_openvino.patterns import takes
from collage_openvino.profile import profile
from collage_openvino.query import refusals

OLDEST = (2026, 2)
"""Oldest supported version, which has everything the plugin calls; the same as the pin in `pyproject.toml`."""
INT8_FLAGS = frozenset({"avx_vnni", "avx512_vnni", "amx_int8"})
"""Features of a CPU that multiplies 8-bit integers."""


def targets(version: str, capabilities: Collection[str], flags: Collection[str]) -> list[Target]:
    """Return the targets of a CPU.

    bfloat16 is offered where the CPU multiplies it (AVX512_BF16, AMX_BF16), and on request where OpenVINO
    emulates it: on any CPU with AVX-512, 4 to 50 times slower than float32 (measured, OpenVINO 2026.4.1), but
    with its rounding.

    8-bit integers are offered where the CPU multiplies them (AVX_VNNI, AVX512_VNNI, AMX_INT8), and on request
    elsewhere: there sums of products saturate at 16 bits (OpenVINO's documentation, "Saturation (overflow) issue").
    What is not quantised is float32, or bfloat16 where the CPU has that, too.

    Weights alone are 8-bit integers in `int8-weights`: kernels of few rows read a quarter of the bytes, and multiply
    in float32. With 1 row it takes 0.36 of the time of bfloat16 (`benchmarks/few_rows.py`, with AVX-512); without
    AVX-512 it is offered on request, since nothing was measured.

    Args:
        version: Version of OpenVINO.
        capabilities: Its `OPTIMIZATION_CAPABILITIES` of the device, e.g. `{"FP32", "BF16", "INT8"}`.
        flags: CPU feature flags, e.g. `{"avx2", "avx512f"}`.
    """
    plain = Target(toolchain="openvino", fingerprint=f"openvino {version}", joins=Joins.ANY)

    def lower(precision: str, on_request: bool) -> Target:
        options = (("precision", precision),)
        return dataclasses.replace(plain, options=options, exact=False, on_request=on_request)

    found = [plain]
    slow_bf16, slow_int8 = "BF16" not in capabilities, INT8_FLAGS.isdisjoint(flags)
    if not slow_bf16 or "avx512f" in flags:
        found.append(lower("bf16", slow_bf16))
    found.append(lower("int8", slow_int8))
    if not slow_bf16:
        found.append(lower("int8+bf16", slow_int8))
    found.append(lower("int8-weights", "avx512f" not in flags))
    return found


class OpenVinoPlugin:
    """Hooks of the toolchain `openvino`; keeps the process's one `openvino.Core`."""

    def __init__(self) -> None:
        self._core: Any = None

    def core(self) -> Any:
        """Return the `openvino.Core`, created on first use: it loads plugins and starts a thread pool.

        Raises:
            ImportError: If OpenVINO is not installed or cannot be loaded.
        """
        if self._core is None:
            import openvino

            self._core = openvino.Core()
        return self._core

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `openvino`, and `openvino(precision=...)` with the types of `targets`."""
        try:
            import openvino
        except Exception as error:
            return Unsupported(f"openvino cannot be imported ({error}); pip install openvino")
        version = str(openvino.__version__).partition("-")[0]
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            return Unsupported(f"openvino {version} is too old; pip install 'openvino>={OLDEST[0]}.{OLDEST[1]}'")
        core = self.core()
        if "CPU" not in core.available_devices:
            return Unsupported(f"openvino {version} has no CPU device here, only {core.available_devices}")
        return targets(version, core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"), host.cpu_flags)

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register every operator of the frontend's domains, on values the CPU plugin holds exactly."""
        table.predicate("*", takes)

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """Return the nodes that cannot be compiled on their own, with OpenVINO's message."""
        return refusals(self.core(), target, model)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Return the exported compiled model as an artifact."""
        return lower(self.core(), target, function, build)

    @hookimpl
    def collage_check_data(self) -> Supported:
        """Return that artifacts are data: a graph, from which OpenVINO generates the machine code."""
        return Supported()

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Import the compiled model."""
        try:
            core = self.core()
        except Exception as error:
            return Unsupported(f"openvino cannot be imported ({error}); pip install openvino")
        return load(core, target, artifact, run)

    @hookimpl
    def collage_profile(
        self,
        target: Target,
        function: KernelFunction,
        artifact: Artifact,
        run: RunContext,
        bind: Callable[[Kernel], BoundCall],
        runs: int,
    ) -> KernelProfile | Unsupported:
        """Return the performance counters of the compiled model, by the nodes of the function."""
        return profile(self.core(), target, function, artifact, run, bind, runs)


plugin = OpenVinoPlugin()
