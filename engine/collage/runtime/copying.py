"""Make the calls that copy values between devices and wait for a device."""

from __future__ import annotations

import functools

import numpy as np

from collage.devices.opening import Devices
from collage.runtime.kernels.launching import BoundStep, Does
from collage.runtime.places import Places, Rim
from collage.runtime.schedule import CopyOut, Synchronise, Transfer
from collage_core.contract import BoundCall

_NOT_CAPTURED = "it copies between the host and a device"


def bound_transfer(action: Transfer, places: Places, rim: Rim, devices: Devices) -> BoundStep:
    """Return the step that copies between CPU and device memory, named `device_copy VALUE to DEVICE`."""
    device = devices[action.device]
    source, target = (places.of(action.root, where, rim) for where in (action.source, action.target))
    if action.target == "cpu":
        call: BoundCall = functools.partial(device.read, target.array, source.pointer)
    else:
        call = functools.partial(device.write, target.pointer, source.array)
    name = f"device_copy {action.root.name} to {action.target}"
    return BoundStep(
        name=name,
        target="host",
        nodes=(),
        call=call,
        device=action.device,
        not_captured=_NOT_CAPTURED,
        does=Does.COPY,
    )


def bound_copy_out(action: CopyOut, places: Places, rim: Rim, devices: Devices, name: str) -> BoundStep:
    """Return the step that copies a value into an output's own memory."""
    source, target = places.of(action.output, action.device, rim), rim.outputs[name]
    if action.device == "cpu":
        call = functools.partial(np.copyto, target.array, source.array)
        return BoundStep(name=f"copy {name}", target="host", nodes=(name,), call=call, does=Does.HOST)
    copied = functools.partial(devices[action.device].copy, target.pointer, source.pointer, target.spec.nbytes)
    return BoundStep(
        name=f"copy {name}",
        target="host",
        nodes=(),
        call=copied,
        device=action.device,
        not_captured="",
        does=Does.COPY,
    )


def bound_wait(action: Synchronise, devices: Devices) -> BoundStep:
    """Return the step that waits for a device."""
    wait = devices[action.device].synchronise
    return BoundStep(name=f"synchronise {action.device}", target="host", nodes=(), call=wait, does=Does.WAIT)
