"""Calls bound to the places of one run: kernels, views and copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from collage.devices.opening import Devices
from collage.runtime.copying import bound_copy_out, bound_transfer, bound_wait
from collage.runtime.kernels.launching import BoundStep, Does
from collage.runtime.kernels.loading import Loaded
from collage.runtime.places import Places, Rim
from collage.runtime.schedule import Action, Compute, CopyOut, Synchronise, Transfer
from collage.runtime.wiring import Wiring
from collage_core.contract import BoundCall, Buffer, ValueKind
from collage_core.errors import KernelLoadError


def bound_action(
    action: Action, places: Places, rim: Rim, *, kernels: Mapping[str, Loaded], devices: Devices, wiring: Wiring
) -> BoundStep:
    """Return an action's call.

    Args:
        action: One step of a schedule.
        places: Where values lie.
        rim: Where graph inputs and outputs lie in this run.
        kernels: Loaded kernel of each call site.
        devices: The devices of the run.
        wiring: Which values there are.

    Raises:
        KernelLoadError: If a kernel refuses its buffers.
    """
    match action:
        case Compute():
            return _bound_compute(action, places, rim, kernels)
        case Transfer():
            return bound_transfer(action, places, rim, devices)
        case CopyOut():
            return bound_copy_out(action, places, rim, devices, wiring.specs[action.output].name)
        case Synchronise():
            return bound_wait(action, devices)


def _bound_compute(action: Compute, places: Places, rim: Rim, kernels: Mapping[str, Loaded]) -> BoundStep:
    step, device = action.step, action.device
    reads = [places.of(value, device, rim) for value in step.reads]
    writes = [places.of(value, device, rim) for value in step.writes]
    if step.view is not None:
        call = _view_call(step.view, reads[0], writes[0])
        return BoundStep(name=step.name, target=step.target, nodes=step.nodes, call=call, does=Does.HOST)
    try:
        call = kernels[step.name].kernel.bind(reads, writes, places.workspace(step.name))
    except Exception as error:
        raise KernelLoadError(step.name, step.target, step.nodes, f"it refuses its buffers: {error}") from error
    return BoundStep(
        name=step.name,
        target=step.target,
        nodes=step.nodes,
        call=call,
        device=device,
        not_captured=kernels[step.name].not_captured,
    )


def _view_call(view: Callable[[Any], Any], source: Buffer, target: Buffer) -> BoundCall:
    """Return a view of a value whose place or shape changes from run to run."""
    if target.spec.kind is ValueKind.FOREIGN and source.spec.kind is not ValueKind.FOREIGN:
        # a foreign value outlives the place it was made from
        return lambda: target.put(np.array(view(source.value)))
    return lambda: target.put(view(source.value))
