"""The whole contract between core and toolchain plugins, on one page.

A plugin is a distribution with an entry point in the group `collage.backends`; the entry point's name is the
toolchain's name, and it refers to an object whose methods carry `@hookimpl`. An implementation may take fewer
arguments than its specification, so the contract can grow.

Each hook runs in one of two places. In the *driver*, a plugin runs beside the search and the user's own code:
it is pure Python and imports no toolchain library. In the toolchain's *worker*, a process of its own with a
deadline, it may import anything, block, and crash: that costs its candidates and nothing else.
`collage_load` runs in a worker while measuring and in the user's process when a finished executable is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pluggy

from collage_core.contract import (
    Artifact,
    BoundCall,
    BuildContext,
    Host,
    Kernel,
    KernelFunction,
    Measurement,
    Protocol,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.fusion import FusionRule
from collage_core.patterns import PatternTable

ENTRY_POINT_GROUP = "collage.backends"

hookspec = pluggy.HookspecMarker("collage")
hookimpl = pluggy.HookimplMarker("collage")


@hookspec(firstresult=True)
def collage_check_host(host: Host) -> Supported | Unsupported:
    """Whether the machine can be one for the toolchain, by what is known of it. Optional; called in the driver.

    A machine that is refused here costs no worker process, so a toolchain for devices that most machines lack answers
    by them. What takes the library to know is for `collage_targets`.

    Args:
        host: The machine the kernels will run on, with its devices.

    Returns:
        `Supported()` if the toolchain may have targets here. Or why it has none: no such device, its driver too old.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_targets(host: Host) -> Sequence[Target] | Unsupported:
    """Which targets the toolchain offers on this machine. Called once per worker, in the worker.

    Args:
        host: The machine the kernels will run on, with its devices; a library that builds ahead of time goes by this,
            not by the machine it finds itself on. `collage_check_host` has not refused it.

    Returns:
        Targets, the default one first; every `Target.toolchain` is the entry point's name, every `Target.device` the
        CPU or one of `host.devices`. Or why the toolchain is unusable here: library missing, version too old, no such
        device.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_register_patterns(table: PatternTable, target: Target) -> None:
    """Adds the operator groups the toolchain has one kernel for. Called in the driver, once per target.

    Args:
        table: Takes named patterns in priority order, each with an optional `check` that may refuse a match with a
            reason and an `attrs_getter` whose result goes with the composite.
        target: One of the plugin's own targets.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_register_predicates(table: PatternTable, target: Target) -> None:
    """Adds the single operators the toolchain runs. Called in the driver, once per target.

    Args:
        table: Takes a predicate per operator, or one for every operator; a predicate answers `Supported` or
            `Unsupported` with the reason.
        target: One of the plugin's own targets.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_fusion_spec(target: Target, default: FusionRule) -> FusionRule | None:
    """Replaces or wraps the rule core built from the table. Optional; called in the driver.

    Args:
        target: One of the plugin's own targets.
        default: Core's rule: patterns as composites, or predicates, joined as `target.joins` says; or native fusion
            if the table is empty.

    Returns:
        The rule to use, or None to keep `default`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_query(target: Target, model: KernelFunction) -> Mapping[str, str] | None:
    """The library's own opinion on a whole model. Optional; called in the worker before candidates are made.

    Args:
        target: One of the plugin's own targets.
        model: The prepared model as one function; node names are unique.

    Returns:
        Reason by name of each node the library refuses; empty when it takes all. None for no opinion. Libraries that
        stop at the first node they refuse are asked again about each alone:
        `collage_core.ir.graph.refused.refused_nodes`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_lower(target: Target, function: KernelFunction, build: BuildContext) -> Iterable[Artifact] | Unsupported:
    """Builds one candidate, in the worker.

    Args:
        target: One of the plugin's own targets.
        function: One ONNX model; every planned input and output has a static shape, row-major, in the model's dtype.
            `patterns.match_model` finds in it again what its pattern captured in the driver.
        build: Threads, launch mode, effort, seconds for tuning and for all, how many variants or which one, and whether
            deterministic ones only, workspace limit in bytes, blob cache, and the machine to build for.

    Returns:
        Variants (algorithms, tile sizes), best guess first, made as they are asked for and each loadable by
        `collage_load`; core checks and times them alike and keeps one. Or why the toolchain refuses. A variant's name
        says how it was made: functions of equal `structural_hash` get the same variants under the same names, since one
        is measured for all, and `build.variant` asks for the one that won.

    Raises:
        LoweringError: If the toolchain accepted the function and then failed.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_load(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Makes an artifact callable without compiling it again. Called in workers and in the user's process.

    Args:
        target: The target the artifact was built for.
        artifact: What `collage_lower` yielded, perhaps on another day in another process.
        run: Threads, device, stream, and the constants `artifact.constants` asks for: `run.weight` gives them where the
            kernel reads them.

    Returns:
        The kernel, a `SizedKernel` if only now it knows its scratch memory; or why it cannot run here; core then lowers
        again from the packaged function.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_measure(
    target: Target, call: BoundCall, protocol: Protocol, fallback: Callable[[], Measurement]
) -> Measurement | None:
    """Times a bound call with a clock of the plugin's own: a board, a simulator, a power meter. Optional.

    Called in the worker, on inputs captured from a real run, after the outputs were checked.

    Args:
        target: The target the call was loaded for.
        call: Everything bound; each call overwrites the outputs.
        protocol: How long and how often.
        fallback: Core's own clock.

    Returns:
        The measurement, or None to have core time the call.
    """
    raise NotImplementedError
