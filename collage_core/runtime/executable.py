"""The partitioned model made runnable: kernels loaded, values placed, calls bound once."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

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
from collage_core.runtime.bound_run import BoundRun, BoundStep
from collage_core.runtime.loading import Load, Loaded, Loader, LoweredAgain, Relower
from collage_core.runtime.places import Places, Rim
from collage_core.runtime.scratch import removed_with
from collage_core.runtime.wiring import Step, Wiring, wire

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
        self._places = Places(wiring, {name: loaded.workspace_bytes for name, loaded in kernels.items()})
        self._inner: dict[int, BoundStep] = {}

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

        Raises:
            ModelError: If the model is not a partitioned one.
            KernelLoadError: If a kernel cannot be loaded.
        """
        sites = call_sites(model)
        wiring = wire(model, sites)
        scratch = Path(tempfile.mkdtemp(prefix="collage-"))
        loader = Loader(
            load=load, threads=threads, scratch=scratch, host=host or Host.this(), weights=weights, relower=relower
        )
        source = _Source(loader, {site.name: site for site in sites}, artifacts, targets)
        return cls(wiring, {site.name: source(site.name) for site in sites}, source)

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
        return self._places.plan.nbytes

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
        kernels = {
            name: loaded if isinstance(loaded.kernel, ReentrantKernel) else self._source(name)
            for name, loaded in self._kernels.items()
        }
        return Executable(self._wiring, kernels, self._source)

    def bind(self, inputs: Mapping[str, Array] | None = None, outputs: Mapping[str, Array] | None = None) -> BoundRun:
        """Fix the memory of one run.

        Args:
            inputs: Arrays to read graph inputs from, by name; inputs not named get arrays of their own.
            outputs: Arrays to write graph outputs into, by name; outputs not named get arrays of their own.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
            KernelError: If a kernel refuses its buffers.
        """
        rim = self._places.rim(inputs or {}, outputs or {})
        steps = [self._bound(place, step, rim) for place, step in enumerate(self._wiring.steps)]
        for value in self._wiring.copied_outputs():
            name = self._wiring.specs[value].name
            target = rim.outputs[name].array
            source = self._places.of(value, rim).array
            steps.append(BoundStep(name=f"copy {name}", target="host", nodes=(name,), call=_copy(target, source)))
        order = [self._wiring.specs[value].name for value in self.outputs]
        return BoundRun(steps=steps, inputs=rim.inputs, outputs=rim.outputs, order=order, owner=self)

    def _bound(self, place: int, step: Step, rim: Rim) -> BoundStep:
        """A step's call; one that touches no graph input or output is the same in every bound run.

        Steps are remembered by their place in the run: only call sites have names of their own.
        """
        inner = not any(self._places.at_rim(value, rim) for value in (*step.reads, *step.writes))
        if inner and place in self._inner:
            return self._inner[place]
        reads = [self._places.of(value, rim) for value in step.reads]
        writes = [self._places.of(value, rim) for value in step.writes]
        if step.view is not None:
            call = _view_call(step.view, reads[0], writes[0])
        else:
            try:
                call = self._kernels[step.name].kernel.bind(reads, writes, self._places.workspace(step.name))
            except Exception as error:
                raise KernelLoadError(step.name, step.target, step.nodes, f"it refuses its buffers: {error}") from error
        bound = BoundStep(name=step.name, target=step.target, nodes=step.nodes, call=call)
        if inner:
            self._inner[place] = bound
        return bound


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
        removed_with(self, loader.scratch)

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


def _copy(target: Array, source: Array) -> BoundCall:
    return functools.partial(np.copyto, target, source)


def _view_call(view: Callable[[Any], Any], source: Buffer, target: Buffer) -> BoundCall:
    """A view of a value whose place or shape changes from run to run."""
    if target.spec.kind is ValueKind.FOREIGN and source.spec.kind is not ValueKind.FOREIGN:
        # a foreign value outlives the place it was made from
        return lambda: target.put(np.array(view(source.value)))
    return lambda: target.put(view(source.value))
