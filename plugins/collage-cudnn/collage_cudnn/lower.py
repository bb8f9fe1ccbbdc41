"""From a kernel function to artifacts: layouts, and the library's plans in each, are the variants."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator

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
from collage_cudnn.described import Described
from collage_cudnn.graph import DataType, Graph, Layout
from collage_cudnn.library import CudnnError, Found, Library
from collage_cudnn.parts import parts_of
from collage_cudnn.program import Program, assembled

BFLOAT16_CAPABILITY = (8, 0)
"""Ampere, the first with bfloat16; also the first that cuDNN's attention takes, and the first with TF32."""


def lower(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
) -> Iterator[Artifact] | Unsupported:
    """Describes a function in each layout and asks the library for plans.

    Args:
        library: The library.
        handle: Gives its handle on the device.
        target: Says the precision.
        device: What it is built for.
        function: One of the table's groups, or several that are joined.
        build: Limits, and how many variants or which one.

    Returns:
        Variants; those of different layouts take turns, for the library ranks plans within one graph only.
    """
    programs: dict[Layout, Program] = {}
    reason = ""
    for layout in _layouts(function):
        parts = parts_of(function, target, layout)
        if isinstance(parts, Unsupported):
            return parts
        if reason := _too_old(parts, device):
            return Unsupported(reason)
        program = assembled(parts, function.model.graph.inputs, function.model.graph.outputs)
        if program not in programs.values():
            programs[layout] = program
    made = _variants(library, handle, target, device, function, build, programs)
    try:
        first = next(made)
    except StopIteration as nothing:
        return Unsupported(str(nothing.value))
    return itertools.chain((first,), made)


def variant_name(layout: Layout, rank: int, found: list[Found]) -> str:
    """A layout and, of one graph, engine and knobs; of several, which of each graph's plans they are.

    Examples:
        >>> variant_name(Layout.CHANNELS_LAST, 2, [Found("eng10_k2=7", 0, b"")])
        'nhwc_eng10_k2=7'
    """
    return f"{layout.value}_{found[0].name}" if len(found) == 1 else f"{layout.value}_plans{rank}"


def _layouts(function: KernelFunction) -> tuple[Layout, Layout]:
    """The likelier one first: 16-bit kernels are made for channels-last, exact float32 ones for channels-first."""
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


def _variants(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
    programs: dict[Layout, Program],
) -> Generator[Artifact, None, str]:
    """Variants of all layouts in turns; returns the reason if there is none."""
    reasons: list[str] = []
    ways = [
        _of_layout(library, handle, target, device, function, build, layout, program, reasons)
        for layout, program in programs.items()
        if build.variant is None or build.variant.startswith(f"{layout.value}_")
    ]
    yielded = 0
    while ways and yielded < max(1, build.max_variants):
        way = ways.pop(0)
        artifact = next(way, None)
        if artifact is not None:
            yielded += 1
            ways.append(way)
            yield artifact
    return "; ".join(dict.fromkeys(reasons)) or f"it makes no variant {build.variant!r}"


def _of_layout(
    library: Library,
    handle: Callable[[], int],
    target: Target,
    device: Device,
    function: KernelFunction,
    build: BuildContext,
    layout: Layout,
    program: Program,
    reasons: list[str],
) -> Iterator[Artifact]:
    limit = build.workspace_limit_bytes - program.scratch_bytes
    if limit < 0:
        reasons.append(f"{program.scratch_bytes} bytes between its steps are more than the workspace may have")
        return
    wanted = None if build.variant is None else build.variant.removeprefix(f"{layout.value}_")
    name = wanted if len(program.graphs) == 1 else None

    def plans(graph: Graph) -> Iterator[Found]:
        exact = target.option("precision") != "tf32"
        return library.plans(graph, handle(), exact=exact, workspace_limit_bytes=limit, name=name)

    ways = [plans(graph) for graph in program.graphs]
    last: list[Found] = []
    for rank in itertools.count():
        found: list[Found] = []
        fresh = False
        for number, way in enumerate(ways):
            try:
                plan = next(way, None)
            except CudnnError as error:
                reasons.append(f"{layout.value}: {error}")
                return
            fresh |= plan is not None
            if plan is None and not last:
                return
            found.append(plan or last[number])
        if not fresh:
            return
        last = found
        if len(found) == 1 or build.variant in (None, variant_name(layout, rank, found)):
            yield _artifact(library, device, function, layout, rank, program, found)


def _artifact(
    library: Library,
    device: Device,
    function: KernelFunction,
    layout: Layout,
    rank: int,
    program: Program,
    found: list[Found],
) -> Artifact:
    asked = {str(place.at) for step in program.steps for place in step.read if place.kind == "weight"}
    asked |= {name for weight in program.made for name in weight.constants}
    return Artifact(
        files={plan_file(number): each.data for number, each in enumerate(found)},
        metadata={**program.to_json(), "version": library.version(), "layout": layout.value},
        requires=(
            Requirement(kind="compute_capability", name="cuda", specifier=f"=={device.compute_capability}"),
            Requirement(kind="device", name=device.model),
        ),
        constants={name: function.constants[name] for name in sorted(asked)},
        workspace_bytes=program.scratch_bytes + max(each.workspace_bytes for each in found),
        variant=variant_name(layout, rank, found),
        capturable=True,
    )


def plan_file(graph: int) -> str:
    """File of the plan of a graph, by its number in the program."""
    return f"plan_{graph}.bin"
