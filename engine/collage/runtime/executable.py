"""The partitioned model made runnable: kernels loaded, values placed, calls bound once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage.runtime.bound_run import BoundRun
from collage.runtime.copying import bound_copy_out, bound_transfer, bound_wait
from collage.runtime.kernels.clashes import LibraryWatch
from collage.runtime.kernels.launching import BoundStep, Does
from collage.runtime.kernels.loading import Load, Loaded, Loader, LoweredAgain, Relower
from collage.runtime.places import Given, Places, Rim, homes
from collage.runtime.schedule import Compute, CopyOut, Schedule, Synchronise, Transfer, schedule
from collage.runtime.scratch import removed_with
from collage.runtime.wiring import Wiring, wire
from collage_core.contract import (
    Artifact,
    BoundCall,
    Buffer,
    Host,
    ReentrantKernel,
    Target,
    TensorSpec,
    ValueKind,
)
from collage_core.errors import KernelError, KernelLoadError
from collage_core.passes.call_sites import CallSite, call_sites

Array = np.ndarray[Any, Any]


class Executable:
    """Loaded kernels over one planned arena. Make one with `Executable.build`.

    Values inside lie in the arena; graph inputs and outputs have memory of their own, so that they can be bound
    to a caller's arrays. One run at a time: all bound runs share the kernels and the arena. `clone` for more.
    """

    def __init__(self, wiring: Wiring, kernels: Mapping[str, Loaded], source: _Source) -> None:
        self._wiring = wiring
        self._kernels = kernels
        self._source = source
        self._devices = source.devices
        self._memories: dict[frozenset[tuple[ir.Value, str]], _Memory] = {}
        self._memory = self._memory_for({})

    @classmethod
    def build(
        cls,
        model: ir.Model,
        artifacts: Mapping[str, Artifact],
        targets: Mapping[str, Target],
        load: Load,
        *,
        threads: int,
        relower: Relower | None = None,
        weights: Mapping[str, Array] | None = None,
        host: Host | None = None,
        providers: Providers | None = None,
    ) -> Executable:
        """Load every kernel of a partitioned model and plan its memory.

        Args:
            model: A partitioned model, its nodes in topological order.
            artifacts: Artifact of each call site, by call-site id; each is asked for when it is loaded, not kept.
            targets: Target of each call site, by call-site id.
            load: The toolchains' loaders.
            threads: CPU threads of each kernel.
            relower: Lowers a call site again when its artifact does not load on this machine.
            weights: Weights by content hash for artifacts that do not embed them; None to take the model's.
            host: The machine; None for this one.
            providers: Who provides the devices that targets name; those installed if None.

        Raises:
            ModelError: If the model is not a partitioned one.
            KernelLoadError: If a kernel cannot be loaded.
            LibraryClashError: If two toolchains have loaded two of a library of which there is room for one.
            DeviceError: If a device has not the memory its values need.
        """
        sites = call_sites(model)
        wiring = wire(model, sites)
        providers = providers or Providers.discover()
        scratch = Path(tempfile.mkdtemp(prefix="collage-"))
        loader = Loader(
            load=load,
            threads=threads,
            scratch=scratch,
            host=host or this_host(providers),
            weights=weights,
            relower=relower,
            devices=Devices(providers.open),
        )
        source = _Source(loader, {site.name: site for site in sites}, artifacts, targets)
        watch = LibraryWatch(providers.libraries)
        kernels: dict[str, Loaded] = {}
        for site in sites:
            kernels[site.name] = source(site.name)
            watch.look(targets[site.name].toolchain)
        watch.look_again()
        return cls(wiring, kernels, source)

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """The model's inputs in order, weights excepted."""
        return self._wiring.inputs

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """The model's outputs in order."""
        return self._wiring.outputs

    @property
    def arena_bytes(self) -> int:
        """Memory of all values inside, and of the kernels' scratch."""
        return sum(self.arenas.values())

    @property
    def arenas(self) -> dict[str, int]:
        """Bytes of memory by device: values inside, replicas of those of other devices, and the kernels' scratch."""
        return {device: plan.nbytes for device, plan in self._memory.places.plans.items()}

    @property
    def lowered_again(self) -> tuple[LoweredAgain, ...]:
        """Kernels that were built anew because their artifacts do not fit this machine."""
        return self._source.lowered_again

    def spec(self, value: ir.Value) -> TensorSpec:
        """What is known of an input or output."""
        return self._wiring.specs[value]

    def clone(self) -> Executable:
        """The same executable with memory of its own, to run beside this one.

        Reentrant kernels are shared, with their weights and threads; the others are loaded again.

        Raises:
            KernelLoadError: If a kernel cannot be loaded again.
        """
        source = self._source.apart()
        kernels = {
            name: loaded if isinstance(loaded.kernel, ReentrantKernel) and source.on_cpu(name) else source(name)
            for name, loaded in self._kernels.items()
        }
        return Executable(self._wiring, kernels, source)

    def bind(self, inputs: Mapping[str, Given] | None = None, outputs: Mapping[str, Given] | None = None) -> BoundRun:
        """Fix the memory of one run.

        Args:
            inputs: Arrays to read graph inputs from, by name; inputs not named get arrays of their own, in the CPU's
                memory. Arrays of a device that the plan uses, which speak DLPack, are read where they are; a device's
                name has an array made there.
            outputs: Arrays to write graph outputs into, likewise.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
            KernelError: If a kernel refuses its buffers.
            DeviceError: If a device has not the memory it takes.
        """
        inputs, outputs = inputs or {}, outputs or {}
        given = homes(self._wiring, self._devices, inputs, "input")
        memory = self._memory_for(given | homes(self._wiring, self._devices, outputs, "output"))
        rim = memory.places.rim(inputs, outputs)
        steps = [self._bound(memory, place, rim) for place in range(len(memory.schedule.actions))]
        order = [self._wiring.specs[value].name for value in self.outputs]
        return BoundRun(
            steps=steps, inputs=rim.inputs, outputs=rim.outputs, order=order, owner=self, devices=self._devices
        )

    def _memory_for(self, given: Mapping[ir.Value, str]) -> _Memory:
        """Schedule and memory for inputs and outputs on these devices; made when first asked for."""
        key = frozenset(given.items())
        if key not in self._memories:
            planned = schedule(self._wiring, self._source.places, given)
            sizes = {name: loaded.workspace_bytes for name, loaded in self._kernels.items()}
            self._memories[key] = _Memory(planned, Places(planned, sizes, self._devices))
        return self._memories[key]

    def _bound(self, memory: _Memory, place: int, rim: Rim) -> BoundStep:
        """An action's call; one that touches no graph input or output is the same in every bound run.

        Steps are remembered by their place in the run: only call sites have names of their own.
        """
        if place in memory.inner:
            return memory.inner[place]
        action, places = memory.schedule.actions[place], memory.places
        match action:
            case Compute():
                bound = self._bound_compute(action, places, rim)
            case Transfer():
                bound = bound_transfer(action, places, rim, self._devices)
            case CopyOut():
                bound = bound_copy_out(action, places, rim, self._devices, self._wiring.specs[action.output].name)
            case Synchronise():
                bound = bound_wait(action, self._devices)
        if not places.at_rim(action, rim):
            memory.inner[place] = bound
        return bound

    def _bound_compute(self, action: Compute, places: Places, rim: Rim) -> BoundStep:
        step, device = action.step, action.device
        reads = [places.of(value, device, rim) for value in step.reads]
        writes = [places.of(value, device, rim) for value in step.writes]
        if step.view is not None:
            call = _view_call(step.view, reads[0], writes[0])
            return BoundStep(name=step.name, target=step.target, nodes=step.nodes, call=call, does=Does.HOST)
        try:
            call = self._kernels[step.name].kernel.bind(reads, writes, places.workspace(step.name))
        except Exception as error:
            raise KernelLoadError(step.name, step.target, step.nodes, f"it refuses its buffers: {error}") from error
        return BoundStep(
            name=step.name,
            target=step.target,
            nodes=step.nodes,
            call=call,
            device=device,
            not_captured=self._kernels[step.name].not_captured,
        )


class _Memory:
    """One schedule of an executable, its places, and the calls over them that no bound run changes."""

    def __init__(self, planned: Schedule, places: Places) -> None:
        self.schedule = planned
        self.places = places
        self.inner: dict[int, BoundStep] = {}


class _Source:
    """Loads kernels for an executable and its clones, and removes what they left on disk with the last of them."""

    def __init__(
        self,
        loader: Loader,
        sites: Mapping[str, CallSite],
        artifacts: Mapping[str, Artifact],
        targets: Mapping[str, Target],
    ) -> None:
        self._loader = loader
        self._sites = sites
        self._artifacts = artifacts
        self._targets = targets
        self._keeps: _Source | None = None
        if loader.owns_scratch:
            removed_with(self, loader.scratch)

    @property
    def devices(self) -> Devices:
        """Those of the executable, each with a stream of its own."""
        return self._loader.devices

    @property
    def places(self) -> dict[str, str]:
        """Device of each call site."""
        return {name: target.device for name, target in self._targets.items()}

    def on_cpu(self, name: str) -> bool:
        """Whether a call site runs on the CPU, and not on a stream."""
        return self._targets[name].device == "cpu"

    def apart(self) -> _Source:
        """The same for a clone: with streams of its own where devices take part, and with what they hold shared."""
        if not any(True for _ in self.devices):
            return self
        apart = _Source(self._loader.apart(), self._sites, self._artifacts, self._targets)
        apart._keeps = self
        return apart

    @property
    def lowered_again(self) -> tuple[LoweredAgain, ...]:
        """What had to be."""
        return tuple(self._loader.again.values())

    def __call__(self, name: str) -> Loaded:
        """The kernel of a call site."""
        site = self._sites[name]
        if name not in self._artifacts or name not in self._targets:
            raise KernelError(f"call site {name!r} of {site.target} has no artifact or no target")
        return self._loader(site, self._targets[name], self._artifacts[name])


def _view_call(view: Callable[[Any], Any], source: Buffer, target: Buffer) -> BoundCall:
    """A view of a value whose place or shape changes from run to run."""
    if target.spec.kind is ValueKind.FOREIGN and source.spec.kind is not ValueKind.FOREIGN:
        # a foreign value outlives the place it was made from
        return lambda: target.put(np.array(view(source.value)))
    return lambda: target.put(view(source.value))
