"""Lower a kernel function to artifacts: the variants are layouts, and the library's plans in each."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

import onnx_ir

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    KernelFunction,
    Requirement,
    Target,
    Unsupported,
)
from collage_cuda.variants import begun
from collage_cudnn.described import Described
from collage_cudnn.errors import CudnnError, NotSupportedError
from collage_cudnn.graph import DataType, Graph, Layout
from collage_cudnn.kept_plans import KeptPlans
from collage_cudnn.library import Found, Library
from collage_cudnn.parts import parts_of
from collage_cudnn.program import Program, assembled

BFLOAT16_CAPABILITY = (8, 0)
"""Ampere, the first with bfloat16 and TF32, and the first that cuDNN's attention supports."""


def lower(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Describe a function in each layout and request plans from the library.

    Args:
        library: The cuDNN library.
        handle: Returns its handle on the device.
        target: Target that determines the precision.
        device: Device to build for.
        function: One of the table's groups, or several that are joined.
        build: Limits, and how many variants or which one.

    Returns:
        Variants, alternating between layouts, because the library ranks plans within one graph only. Or why the
        library refuses the graph in every layout.

    Raises:
        CudnnError: If the library fails other than by refusing; also from the iterator.
        DeviceError: If the device does not have the memory, is lost or has too old a driver; also from the
            iterator.
    """
    programs: dict[Layout, Program] = {}
    for layout in _layouts(function):
        parts = parts_of(function, target, layout)
        if isinstance(parts, Unsupported):
            return parts
        if reason := _too_old(parts, device):
            return Unsupported(reason)
        program = assembled(parts, function.model.graph.inputs, function.model.graph.outputs)
        if program not in programs.values():
            programs[layout] = program
    return begun(_Lowering(library, handle, target, device, function, build).variants(programs))


def variant_name(layout: Layout, found: Sequence[Found]) -> str:
    """Return a name from which the variant can be built again without building the others.

    Of one graph: layout, engine and knobs. Of several: the layout, the number of each graph's plan, and a digest of
    the plans, so that a change in their order is detected.

    Examples:
        >>> variant_name(Layout.CHANNELS_LAST, [Found("eng10_k2=7", 0, 0, b"")])
        'nhwc_eng10_k2=7'
        >>> variant_name(Layout.CHANNELS_LAST, [Found("eng10_k2=7", 0, 0, b""), Found("eng22", 4, 0, b"")])
        'nhwc_plans0.4_254e881d'
    """
    if len(found) == 1:
        return f"{layout.value}_{found[0].name}"
    positions = ".".join(str(each.position) for each in found)
    digest = hashlib.sha256("/".join(each.name for each in found).encode()).hexdigest()[:8]
    return f"{layout.value}_plans{positions}_{digest}"


def plans_of(variant: str, layout: Layout, graphs: int) -> Sequence[str | int] | None:
    """Return each graph's plan in a variant, by name or position; None if the layout has no such variant.

    Examples:
        >>> plans_of("nhwc_eng10_k2=7", Layout.CHANNELS_LAST, 1)
        ['eng10_k2=7']
        >>> plans_of("nhwc_plans0.4_254e881d", Layout.CHANNELS_LAST, 2)
        [0, 4]
    """
    name = variant.removeprefix(f"{layout.value}_")
    if name == variant:
        return None
    if graphs == 1:
        return [name]
    written = re.fullmatch(r"plans(\d+(?:\.\d+)*)_[0-9a-f]+", name)
    positions = [int(each) for each in written[1].split(".")] if written else []
    return positions if len(positions) == graphs else None


def _layouts(function: KernelFunction) -> tuple[Layout, Layout]:
    """Return the layouts, the better guess first.

    16-bit kernels are made for channels-last, exact float32 ones for channels-first.
    """
    half = any(spec.dtype != onnx_ir.DataType.FLOAT for spec in function.inputs)
    ordered = (Layout.CHANNELS_LAST, Layout.CHANNELS_FIRST)
    return ordered if half else (ordered[1], ordered[0])


def _too_old(parts: tuple[Described, ...], device: Device) -> str:
    major, _, minor = device.compute_capability.partition(".")
    if (int(major), int(minor)) >= BFLOAT16_CAPABILITY:
        return ""
    if any(part.graph.dtype is DataType.BFLOAT16 for part in parts):
        return f"{device.model} computes no bfloat16, which begins with compute capability 8.0"
    if any(operation.kind == "sdpa" for part in parts for operation in part.graph.operations):
        return f"cuDNN's attention begins with compute capability 8.0, and {device.model} has less"
    return ""


@dataclasses.dataclass(frozen=True, slots=True)
class _Lowering:
    """State shared by the layouts of one candidate; `problems` explain why there are no more variants."""

    library: Library
    handle: Callable[[], int]
    target: Target
    device: Device
    function: KernelFunction
    build: BuildContext
    problems: list[CudnnError] = dataclasses.field(default_factory=list)

    def variants(self, programs: Mapping[Layout, Program]) -> Generator[Artifact, None, str]:
        """Yield variants, alternating between layouts; return the reason if there is none.

        Raises:
            CudnnError: At the end, if the library failed other than by refusing.
            DeviceError: As soon as the device fails.
        """
        ways = [self._in_layout(layout, program) for layout, program in programs.items()]
        yielded = 0
        while ways and yielded < max(1, self.build.max_variants):
            way = ways.pop(0)
            artifact = next(way, None)
            if artifact is not None:
                yielded += 1
                ways.append(way)
                yield artifact
        reasons = "; ".join(dict.fromkeys(map(str, self.problems)))
        if not all(isinstance(problem, NotSupportedError) for problem in self.problems):
            raise CudnnError(reasons)
        return reasons or f"it makes no variant {self.build.variant!r}"

    def _in_layout(self, layout: Layout, program: Program) -> Iterator[Artifact]:
        """Yield variants of one layout, in the library's order: each takes the next plan of every graph.

        A graph without further plans keeps its last one.
        """
        build = self.build
        limit = build.workspace_limit_bytes - program.scratch_bytes
        if limit < 0:
            reason = f"{program.scratch_bytes} bytes between its steps are more than the workspace may have"
            self.problems.append(NotSupportedError(reason))
            return
        wanted: Sequence[str | int | None] | None = [None] * len(program.graphs)
        if build.variant is not None:
            wanted = plans_of(build.variant, layout, len(program.graphs))
        if wanted is None:
            return
        try:
            ways = [self._plans(graph, limit, only) for graph, only in zip(program.graphs, wanted, strict=True)]
            found: list[Found] = []
            while any(fresh := [next(way, None) for way in ways]):
                latest = [new or old for new, old in zip(fresh, found or fresh, strict=True)]
                found = [each for each in latest if each is not None]
                if build.variant in (None, variant_name(layout, found)):
                    yield self._artifact(layout, program, found)
        except NotSupportedError as error:
            self.problems.append(NotSupportedError(f"{layout.value}: {error}"))
        except CudnnError as error:
            self.problems.append(CudnnError(f"{layout.value}: {error}"))

    def _plans(self, graph: Graph, limit: int, only: str | int | None) -> Iterator[Found]:
        exact = self.target.option("precision") != "tf32"
        kept = KeptPlans(self.library, self.handle, self.device, self.build.blobs, graph, exact=exact)
        return kept.plans(workspace_limit_bytes=limit, only=only)

    def _artifact(self, layout: Layout, program: Program, found: Sequence[Found]) -> Artifact:
        asked = {str(place.at) for step in program.steps for place in step.read if place.kind == "weight"}
        asked |= {name for weight in program.made for name in weight.constants}
        capability = self.device.compute_capability
        return Artifact(
            files={plan_file(number): each.data for number, each in enumerate(found)},
            metadata={**program.to_json(), "version": self.library.version(), "layout": layout.value},
            requires=(
                Requirement(kind="compute_capability", name="cuda", specifier=f"=={capability}"),
                Requirement(kind="device", name=self.device.model),
            ),
            constants={name: self.function.constants[name] for name in sorted(asked)},
            workspace_bytes=program.scratch_bytes + max(each.workspace_bytes for each in found),
            variant=variant_name(layout, found),
            capturable=True,
        )


def plan_file(graph: int) -> str:
    """Return the file name of a graph's plan, by the graph's number in the program."""
    return f"plan_{graph}.bin"
