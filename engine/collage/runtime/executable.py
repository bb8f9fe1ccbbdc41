"""Make a partitioned model executable: load kernels, place values, bind calls once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.devices.providers import Providers
from collage.runtime.binding import bound_action
from collage.runtime.bound_run import BoundRun
from collage.runtime.kernel_source import KernelSource
from collage.runtime.kernels.admission import Admission, EverythingAdmitted
from collage.runtime.kernels.launching import BoundStep
from collage.runtime.kernels.loading import Load, Loaded, Relower
from collage.runtime.places import Given, Places, Reserve, Rim, homes
from collage.runtime.schedule import Schedule, schedule
from collage.runtime.wiring import Wirings, typical_sizes_of
from collage_core.contract import Artifact, Host, Target, TensorSpec, ValueKind
from collage_core.passes.call_sites import call_sites

Array = np.ndarray[Any, Any]


class Executable:
    """Loaded kernels over one planned arena. Make one with `Executable.build`.

    Internal values lie in the arena; graph inputs and outputs have their own memory, so that they can be bound to a
    caller's arrays. All bound runs share the kernels and the arena, so only one may run at a time; use `clone` to run
    in parallel.
    """

    def __init__(
        self,
        wirings: Wirings,
        sizes: Mapping[str, int],
        kernels: Mapping[str, Loaded],
        source: KernelSource,
        reserve: Reserve,
        *,
        passes_on: bool = False,
    ) -> None:
        self._wirings = wirings
        self._sizes = sizes
        self._wiring = wirings.by_reference(sizes) if passes_on else wirings.at(sizes)
        self._kernels = kernels
        self._source = source
        self._devices = source.devices
        self._reserve = reserve
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
        admission: Admission | None = None,
        reserve: Reserve | None = None,
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
            admission: Decides what may be loaded; None for everything, which is for artifacts of this process.
            reserve: Where arenas of the host are taken from, shared with executables that do not run meanwhile; None
                for one of its own.

        Raises:
            ModelError: If the model is not a partitioned one.
            KernelLoadError: If a kernel cannot be loaded.
            LibraryClashError: If two toolchains have loaded two of a library of which there is room for one.
            DeviceError: If a device has not the memory its values need.
        """
        sites = call_sites(model)
        source = KernelSource.open(
            {site.name: site for site in sites},
            artifacts,
            targets,
            load,
            threads=threads,
            relower=relower,
            weights=weights,
            host=host,
            providers=providers or Providers.discover(),
            admission=admission or EverythingAdmitted(),
        )
        wirings, sizes = Wirings(model, sites), typical_sizes_of(model)
        return cls(wirings, sizes, source.all(), source, Reserve() if reserve is None else reserve)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Size of each symbol in the shapes of the model's inputs; the typical ones at first."""
        return self._sizes

    def at(self, sizes: Mapping[str, int]) -> Executable:
        """Return the same executable for other sizes of the model's inputs, with the same kernels and arena.

        Args:
            sizes: Size of each symbol.

        Raises:
            KernelError: If a kernel refuses buffers of these sizes.
        """
        return Executable(self._wirings, sizes, self._kernels, self._source, self._reserve)

    def by_reference(self) -> Executable:
        """Return the same executable for any sizes, with the same kernels, and no memory for what depends on these.

        Kernels read inputs where the caller has them, and allocate outputs.
        """
        return Executable(self._wirings, self._sizes, self._kernels, self._source, self._reserve, passes_on=True)

    @property
    def inputs(self) -> tuple[ir.Value, ...]:
        """The model's inputs in order, without weights."""
        return self._wiring.inputs

    @property
    def outputs(self) -> tuple[ir.Value, ...]:
        """Return the model's outputs in order."""
        return self._wiring.outputs

    @property
    def is_on_host(self) -> bool:
        """Whether all kernels run on the CPU."""
        return self._memory.schedule.devices == ("cpu",)

    @property
    def arena_bytes(self) -> int:
        """Memory of all internal values and of the kernels' scratch, in bytes."""
        return sum(self.arenas.values())

    @property
    def arenas(self) -> dict[str, int]:
        """Bytes of memory by device: internal values, replicas of other devices' values, and the kernels' scratch."""
        return {device: plan.nbytes for device, plan in self._memory.places.plans.items()}

    @property
    def source(self) -> KernelSource:
        """Source of its kernels, which knows what runs at each call site."""
        return self._source

    @property
    def handed_over(self) -> frozenset[str]:
        """Names of outputs that are arrays which a kernel made in the last run, and no other output refers to.

        That is what a kernel puts into a place of unknown size (`Kernel.bind`), and views of it.
        """
        wiring = self._wiring
        made: dict[ir.Value, ir.Value] = {}  # what a kernel wrote, and by what is a view of it
        for step in wiring.steps:
            for value in step.writes:
                source = value if step.view is None else made.get(step.reads[0])
                if source is not None:
                    made[value] = source
        shown = Counter(made[value] for value in wiring.outputs if value in made)
        return frozenset(
            spec.name
            for value in wiring.outputs
            if value in made
            and shown[made[value]] == 1
            and (spec := wiring.specs[value]).kind is ValueKind.FOREIGN
            and spec.dtype not in (None, ir.DataType.STRING)
        )

    @property
    def made_anew(self) -> frozenset[str]:
        """Names of outputs of unknown size that each run makes, or views: those handed over and others."""
        wiring = self._wiring
        foreign = (value for value in wiring.outputs if wiring.specs[value].kind is ValueKind.FOREIGN)
        return frozenset(wiring.specs[value].name for value in foreign if wiring.roots[value].producer() is not None)

    @property
    def passing(self) -> Sequence[Any]:
        """Buffers inside the plan of values of unknown size, which each run makes anew; a view may be of an input."""
        return self._memory.places.passing

    def spec(self, value: ir.Value) -> TensorSpec:
        """Return the tensor spec of an input or output."""
        return self._wiring.specs[value]

    def clone(self, reserve: Reserve | None = None) -> Executable:
        """Return the same executable with memory of its own, for concurrent runs.

        Reentrant kernels are shared, with their weights and threads; the others are loaded again.

        Args:
            reserve: As for `build`.

        Raises:
            KernelLoadError: If a kernel cannot be loaded again.
        """
        source = self._source.apart()
        kernels = {name: source.for_clone(name, loaded) for name, loaded in self._kernels.items()}
        return Executable(self._wirings, self._sizes, kernels, source, Reserve() if reserve is None else reserve)

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
            self._memories[key] = _Memory(planned, Places(planned, sizes, self._devices, self._reserve))
        return self._memories[key]

    def _bound(self, memory: _Memory, place: int, rim: Rim) -> BoundStep:
        """Return the call of an action; one that touches no graph input or output is shared by all bound runs.

        Shared steps are keyed by their position in the run, because only call sites have names of their own.
        """
        if place in memory.inner:
            return memory.inner[place]
        action, places = memory.schedule.actions[place], memory.places
        bound = bound_action(action, places, rim, kernels=self._kernels, devices=self._devices, wiring=self._wiring)
        if not places.at_rim(action, rim):
            memory.inner[place] = bound
        return bound


class _Memory:
    """One schedule of an executable, its buffers, and the calls on internal values, shared by all bound runs."""

    def __init__(self, planned: Schedule, places: Places) -> None:
        self.schedule = planned
        self.places = places
        self.inner: dict[int, BoundStep] = {}
