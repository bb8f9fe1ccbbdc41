"""The whole contract between core and toolchain plugins, on one page.

A plugin is a distribution with an entry point in the group `collage.backends`; the entry point's name is the
toolchain's name, and it refers to an object whose methods carry `@hookimpl`. An implementation may take fewer
arguments than its specification, so the contract can grow.

Each hook runs in one of two places. In the *driver*, a plugin runs in the same process as the search and the user's
own code: it is pure Python and imports no toolchain library. In the toolchain's *worker*, a separate process with a
deadline, it may import anything, block, and crash: only its own candidates are lost.
`collage_load` runs in a worker while measuring and in the user's process when a finished executable is loaded. Before
it, `collage_check_host` is asked there, and of packages of others `collage_check_data` and `collage_targets`.
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
    KernelProfile,
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
    """Check whether the toolchain can run on a host, from the host's description. Optional; called in the driver.

    A host that is refused here costs no worker process, so a toolchain for devices that most machines lack decides
    here. Checks that need the toolchain's library belong in `collage_targets`.

    Args:
        host: The machine the kernels will run on, with its devices.

    Returns:
        `Supported()` if the toolchain may have targets here. Or why it has none: no such device, its driver too old.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_targets(host: Host) -> Sequence[Target] | Unsupported:
    """Return the targets the toolchain supports on this machine.

    Called once per worker, in the worker; in the user's process when a package is loaded that is not trusted, and whose
    artifacts are data.

    Args:
        host: The machine the kernels will run on, with its devices; a library that builds ahead of time uses this
            description, not the machine it runs on. `collage_check_host` has not refused it.

    Returns:
        Targets, the default one first; every `Target.toolchain` is the entry point's name, every `Target.device` the
        CPU or one of `host.devices`. Or why the toolchain is unusable here: library missing, version too old, no such
        device.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_register_patterns(table: PatternTable, target: Target) -> None:
    """Register the operator groups the toolchain has one kernel for. Called in the driver, once per target.

    Args:
        table: Takes named patterns in priority order, each with an optional `check` that may refuse a match with a
            reason and an `attrs_getter` whose result is stored with the composite.
        target: One of the plugin's own targets.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_register_predicates(table: PatternTable, target: Target) -> None:
    """Register the single operators the toolchain runs. Called in the driver, once per target.

    Args:
        table: Takes a predicate per operator, or one for every operator; a predicate returns `Supported` or
            `Unsupported` with the reason.
        target: One of the plugin's own targets.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_fusion_spec(target: Target, default: FusionRule) -> FusionRule | None:
    """Replace or wrap the rule core built from the table. Optional; called in the driver.

    Args:
        target: One of the plugin's own targets.
        default: Core's rule: patterns as composites, or predicates, joined according to `target.joins`; or native
            fusion if the table is empty.

    Returns:
        The rule to use, or None to keep `default`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_query(target: Target, model: KernelFunction) -> Mapping[str, str] | None:
    """Return the nodes of a model that the library refuses. Optional.

    Called in the worker before candidates are made.

    Args:
        target: One of the plugin's own targets.
        model: The prepared model as one function; node names are unique.

    Returns:
        Reason by name of each node the library refuses; empty when it takes all. None if the library cannot say. A
        library that stops at the first node it refuses is queried for each node alone:
        `collage_core.ir.graph.refused.refused_nodes`.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_lower(target: Target, function: KernelFunction, build: BuildContext) -> Iterable[Artifact] | Unsupported:
    """Build one candidate, in the worker.

    Args:
        target: One of the plugin's own targets.
        function: One ONNX model; every planned input and output has a static shape, row-major, in the model's dtype.
            `patterns.match_model` recovers in it what the pattern captured in the driver.
        build: Threads, launch mode, effort, time limits in seconds for tuning and overall, number of variants or the
            one to build, whether only deterministic ones are wanted, workspace limit in bytes, blob cache, and the
            machine to build for.

    Returns:
        Variants (algorithms, tile sizes), best guess first, built lazily and each loadable by `collage_load`; core
        checks and times them alike and keeps one. Or why the toolchain refuses. A variant's name identifies how it
        was built: functions of equal `structural_hash` get the same variants under the same names, since one
        measurement serves all of them, and `build.variant` requests the selected one.

    Raises:
        LoweringError: If the toolchain accepted the function and then failed.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_check_data(target: Target, artifact: Artifact) -> Supported | Unsupported:
    """Check that an artifact is data, not code. Optional: without this hook every artifact of the toolchain is code.

    Called in the user's process before `collage_load`, for packages that were neither written on this machine nor
    accepted with `collage trust`. The artifact, its metadata included, may be anybody's: look at it without loading it.

    Args:
        target: The target that the package says the artifact is for.
        artifact: The artifact.

    Returns:
        `Supported()` if `collage_load` and the kernel's calls execute nothing that the artifact holds, open no library
        and read no file that it names, whatever is in it. Or why it is code: a shared library, machine code of a
        device, a library's own serialised plan that it does not check. Core then lowers again from the packaged
        function, or refuses.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_load(target: Target, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
    """Load an artifact as a kernel, without recompiling. Called in workers and in the user's process.

    Args:
        target: The target the artifact was built for.
        artifact: An artifact that `collage_lower` yielded, possibly in an earlier process.
        run: Threads, device, stream, and the constants that `artifact.constants` requests: `run.weight` returns them
            in the memory the kernel reads.

    Returns:
        The kernel, a `SizedKernel` if its scratch memory is known only after loading; or why it cannot run here, in
        which case core lowers again from the packaged function.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_measure(
    target: Target, call: BoundCall, protocol: Protocol, fallback: Callable[[], Measurement]
) -> Measurement | None:
    """Time a bound call with the plugin's own clock: a board, a simulator, a power meter. Optional.

    Called in the worker, on inputs captured from a real run, after the outputs were checked.

    Args:
        target: The target the call was loaded for.
        call: Call with all buffers bound; each call overwrites the outputs.
        protocol: Duration and number of runs.
        fallback: Measures with core's own clock.

    Returns:
        The measurement, or None to have core time the call.
    """
    raise NotImplementedError


@hookspec(firstresult=True)
def collage_profile(
    target: Target,
    function: KernelFunction,
    artifact: Artifact,
    run: RunContext,
    bind: Callable[[Kernel], BoundCall],
    runs: int,
) -> KernelProfile | Unsupported:
    """Say where the time of a kernel goes, node by node, from the library's own profiler. Optional.

    Called in the worker, once for a kernel that was measured before. The search takes the profile of a large kernel as
    the estimate of the kernels that could be cut out of it, and measures only those that promise something.

    Args:
        target: The target the artifact was built for.
        function: What the artifact was built from; node names are unique.
        artifact: The deployed variant, just built by `collage_lower` in this process.
        run: As for `collage_load`: load the kernel as there, with the library's profiler on and nothing else changed.
        bind: Binds a loaded kernel to buffers that hold inputs captured from a real run; the caller keeps the buffers.
        runs: Number of runs to take the times from, after one that does not count. Answer with the time of a
            typical one, such as the median.

    Returns:
        The profile. `collage_core.contract.attributed` makes it of the kernels a library lists, when each is given the
        nodes it is known to compute. A kernel inside a body (If, Loop, Scan) is part of the node that has the body. Or
        why the library cannot say: this is asked again in each run of Collage, so refuse before the work, not after.
    """
    raise NotImplementedError
