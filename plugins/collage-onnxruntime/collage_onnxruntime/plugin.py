"""The hooks of the toolchain `onnxruntime`. Importing this imports no ONNX Runtime."""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence

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
from collage_onnxruntime.kernel import load
from collage_onnxruntime.lower import lower, multiplies_int8
from collage_onnxruntime.patterns import takes
from collage_onnxruntime.profile import profile
from collage_onnxruntime.query import refusals

OLDEST = (1, 22)
"""Oldest supported version, which has everything the plugin calls; the same as the pin in `pyproject.toml`."""


class OnnxRuntimePlugin:
    """Hooks of the toolchain `onnxruntime`."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `onnxruntime`, `onnxruntime(spin=true)` for whole models, and `onnxruntime(precision=int8)`.

        ONNX Runtime's threads by default go on spinning for a while after a run, and take the cores away from the
        next kernel if another library runs it: an OpenVINO convolution followed by a Gelu took 1.8 times the sum of
        both. The default target spins inside a run and stops at its end: on two cores a MobileNet-like region ran 6
        % faster than with no spinning at all (5.76 ms against 6.11), and after a convolution in OpenVINO their sum
        stayed within 5 % of its parts. A whole model may profit from continued spinning, so that is a target too,
        but one that does not share its process with other toolchains.

        8-bit integers are offered where the CPU multiplies them (AVX_VNNI, AVX512_VNNI, AMX_INT8), and on request
        elsewhere: there products of uint8 and int8 saturate at 16 bits (ONNX Runtime's documentation of quantization),
        which `lower` has it avoid at the expense of speed.
        """
        try:
            import onnxruntime
        except Exception as error:
            return Unsupported(f"onnxruntime cannot be imported ({error}); pip install onnxruntime")
        version = str(onnxruntime.__version__)
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            wanted = ".".join(map(str, OLDEST))
            return Unsupported(f"onnxruntime {version} is too old; pip install 'onnxruntime>={wanted}'")
        fingerprint = f"onnxruntime {version}"
        return [
            Target(toolchain="onnxruntime", fingerprint=fingerprint, joins=Joins.ANY),
            Target(
                toolchain="onnxruntime",
                options=(("spin", "true"),),
                fingerprint=fingerprint,
                joins=Joins.ANY,
                mixable=False,
                about="its idle threads look for work between runs, which is ONNX Runtime's default; for whole models",
            ),
            Target(
                toolchain="onnxruntime",
                options=(("precision", "int8"),),
                fingerprint=fingerprint,
                joins=Joins.ANY,
                exact=False,
                on_request=not multiplies_int8(host),
            ),
        ]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register a predicate for every operator of the domains the CPU provider knows."""
        table.predicate("*", takes)

    @hookimpl
    def collage_query(self, target: Target, model: KernelFunction) -> Mapping[str, str] | None:
        """Return the nodes for which no session can be created, with ONNX Runtime's message."""
        return refusals(model)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Return the model as optimised by ONNX Runtime."""
        return lower(function, build, library=_distribution())

    @hookimpl
    def collage_check_data(self) -> Supported:
        """Return that artifacts are data: a model without custom operators and external data, as `load` checks."""
        return Supported()

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Create a session for the optimised model without further optimisation."""
        return load(target, artifact, run)

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
        """Return the times in a trace of the session, by the nodes of the function."""
        return profile(target, function, artifact, run, bind, runs)


@functools.cache
def _distribution() -> str:
    """Return the distribution that provides the module: `onnxruntime`, `onnxruntime-gpu`, ..."""
    try:
        importlib.metadata.distribution("onnxruntime")
    except importlib.metadata.PackageNotFoundError:  # then the metadata of everything installed, a third of a second
        names = importlib.metadata.packages_distributions().get("onnxruntime", ())
        return min(names, key=len, default="onnxruntime")
    return "onnxruntime"


plugin = OnnxRuntimePlugin()
