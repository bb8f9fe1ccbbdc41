"""Place an executable's values: internal ones in a device's arena, graph inputs and outputs in callers' arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx_ir as ir
from numpy.lib.array_utils import byte_bounds

from collage.devices.opening import Devices, buffer_on, placed_on
from collage.runtime.arena import ArenaPlan, allocate, plan_arena
from collage.runtime.schedule import Action, Compute, CopyOut, Place, Schedule
from collage.runtime.wiring import Wiring, workspace_name
from collage_core.contract import DEVICE_ALIGNMENT_BYTES, Buffer, DeviceMemory, TensorSpec, ValueKind
from collage_core.errors import FeedError

Array = np.ndarray[Any, Any]
Given: TypeAlias = Any
"""A caller's input or output: an array, a device array (DLPack), or a device's name to allocate memory there.

A buffer of another run of the same executable shares that run's memory.
"""

_DLPACK_CPU = 1  # kDLCPU in dlpack.h


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Rim:
    """Buffers at the boundary of one bound run.

    Attributes:
        roots: Buffer of each root on the device where the caller gives it, or where it is written straight into an
            output.
        inputs: Buffer of each graph input, by name.
        outputs: Buffer of each graph output, by name.
    """

    roots: Mapping[Place, Buffer]
    inputs: Mapping[str, Buffer]
    outputs: Mapping[str, Buffer]


class Reserve:
    """Memory by name that executables share, since only one of them runs at a time.

    The largest that was asked for so far serves all. Who asked earlier keeps what it got, so more is taken than is
    asked for where sizes grow: all that was ever taken for a name is less than five times the largest.
    """

    def __init__(self) -> None:
        self._memory: dict[str, Array] = {}

    def take(self, name: str, nbytes: int, make: Callable[[int], Array] = allocate) -> Array:
        """Return that many bytes of memory, aligned, with undefined content.

        Args:
            name: What they are for.
            nbytes: How many.
            make: Allocates more.

        Raises:
            MemoryNeededError: If this machine does not have that much memory.
        """
        known = self._memory.get(name)
        if known is None:
            known = self._memory[name] = make(nbytes)
        elif known.nbytes < nbytes:
            known = self._memory[name] = make(grown(known.nbytes, nbytes))
        return known[:nbytes]


def grown(nbytes: int, wanted: int) -> int:
    """Return how much to take where memory of some size is too small: its sizes then are a geometric series.

    What is not used takes no pages.
    """
    return max(wanted, nbytes + nbytes // 2)


class Places:
    """The memory of one executable under one schedule.

    Host memory is allocated so that the participating devices copy from and to it directly.

    Args:
        schedule: Actions with the values they read and write, and their devices.
        workspace_bytes: Scratch memory by step name.
        devices: The participating devices.
        reserve: Memory that other executables share.

    Attributes:
        plans: Offsets of all blocks, by device.
        passing: Internal places of values that are made anew by each run, wherever their maker has them.
    """

    def __init__(
        self, schedule: Schedule, workspace_bytes: Mapping[str, int], devices: Devices, reserve: Reserve
    ) -> None:
        self._schedule = schedule
        self._wiring = schedule.wiring
        self._devices = devices
        self._inside: dict[Place, Buffer] = {}
        self.passing: list[Buffer] = []
        self.plans: dict[str, ArenaPlan] = {}
        self._arenas: dict[str, Array | DeviceMemory] = {}
        others = schedule.devices[1:]
        self._allocate: Callable[[int], Array] = devices[others[0]].allocate_host if others else allocate
        for device in schedule.devices:
            blocks = schedule.blocks(device, workspace_bytes)
            if device == "cpu":
                self.plans[device] = plan = plan_arena(blocks)
                name = f"arena for copies to {others[0]}" if others else "arena"
                self._arenas[device] = reserve.take(name, plan.nbytes, self._allocate)
            else:
                self.plans[device] = plan = plan_arena(blocks, DEVICE_ALIGNMENT_BYTES)
                self._arenas[device] = devices[device].allocate(plan.nbytes)
        self._workspaces = {
            action.step.name: self._workspace(action, workspace_bytes.get(action.step.name, 0))
            for action in schedule.actions
            if isinstance(action, Compute)
        }

    def workspace(self, step: str) -> Buffer | None:
        """Return the scratch memory of a step; None if it needs none."""
        return self._workspaces.get(step)

    def at_rim(self, action: Action, rim: Rim) -> bool:
        """Return whether an action touches a place that changes between bound runs."""
        if isinstance(action, CopyOut):
            return True
        reads, writes = self._schedule.touched(action)
        return any(place in rim.roots for place in (*reads, *writes))

    def of(self, value: ir.Value, device: str, rim: Rim) -> Buffer:
        """Return the place of a value on a device in one bound run."""
        root = self._wiring.roots[value]
        key = (root, device)
        place = rim.roots.get(key) or self._inside.get(key)
        if place is None:
            place = self._inside[key] = self._make(root, device)
        return place if root is value else _reshaped(place, self._wiring.specs[value])

    def rim(self, inputs: Mapping[str, Given], outputs: Mapping[str, Given]) -> Rim:
        """Return the places for one bound run.

        Args:
            inputs: Caller-provided sources of inputs, each on the device given by its schedule.
            outputs: Caller-provided destinations of outputs, likewise.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
        """
        wiring, schedule = self._wiring, self._schedule
        _check_overlap(inputs, outputs)
        roots: dict[Place, Buffer] = {}
        places: dict[str, Buffer] = {}
        for value in wiring.inputs:
            device, name = schedule.given.get(value, "cpu"), wiring.specs[value].name
            places[name] = roots[value, device] = self._given_or_new(value, device, inputs.get(name))
        written: dict[str, Buffer] = {}
        for value in dict.fromkeys(wiring.outputs):
            spec, root = wiring.specs[value], wiring.roots[value]
            device, given = schedule.given.get(value, "cpu"), outputs.get(spec.name)
            if spec.kind is ValueKind.PLANNED:
                written[spec.name] = place = self._given_or_new(value, device, given)
                if schedule.owned.get((root, device)) is value:
                    roots[root, device] = _reshaped(place, wiring.specs[root])
                continue
            if given is not None and not isinstance(given, Buffer):
                raise FeedError(spec.name, "its size is not known before it is computed, so it cannot be bound")
            if (root, "cpu") not in roots and root.producer() is not None:
                roots[root, "cpu"] = Buffer(spec) if given is None else given
            written[spec.name] = roots.get((root, "cpu")) or self._make(root, "cpu")
        return Rim(roots=roots, inputs=places, outputs=written)

    def _given_or_new(self, value: ir.Value, device: str, given: Given) -> Buffer:
        spec = self._wiring.specs[value]
        if isinstance(given, Buffer) and given.spec is spec:
            return given
        if device == "cpu":
            return _given_or_new(spec, given, self._allocate)
        if given is None or isinstance(given, str):
            return buffer_on(self._devices[device], spec)
        return self._devices[device].taken(spec, given)

    def _make(self, root: ir.Value, device: str) -> Buffer:
        """Create an internal place: in the arena, a constant's own memory, or an object slot."""
        spec = self._wiring.specs[root]
        if root.const_value is not None and root.producer() is None:
            return self._constant(spec, root.const_value, device)
        if spec.kind is ValueKind.FOREIGN:
            self.passing.append(Buffer(spec))
            return self.passing[-1]
        return self._in_arena(spec, device, self.plans[device].offsets[spec.name])

    def _constant(self, spec: TensorSpec, tensor: ir.TensorProtocol, device: str) -> Buffer:
        if device == "cpu":
            return _constant(spec, tensor)
        return _reshaped(placed_on(self._devices[device], spec.name, tensor.numpy()), spec)

    def _workspace(self, action: Compute, nbytes: int) -> Buffer | None:
        if not nbytes:
            return None
        name = workspace_name(action.step.name)
        spec = TensorSpec(name=name, dtype=ir.DataType.UINT8, shape=(nbytes,))
        return self._in_arena(spec, action.device, self.plans[action.device].offsets[name])

    def _in_arena(self, spec: TensorSpec, device: str, offset: int) -> Buffer:
        arena = self._arenas[device]
        if not isinstance(arena, np.ndarray):
            return Buffer.at(spec, device=device, pointer=arena.pointer + offset, keeps=arena)
        return Buffer(spec, arena[offset : offset + spec.nbytes].view(spec.numpy_dtype).reshape(spec.static_shape))


def homes(wiring: Wiring, devices: Devices, given: Mapping[str, Given], kind: str) -> dict[ir.Value, str]:
    """Return the devices on which caller-provided inputs or outputs are, where that is not the CPU.

    Args:
        wiring: The wired model.
        devices: The open devices.
        given: Caller-provided memory by name of an input or output.
        kind: `"input"` or `"output"`.

    Raises:
        FeedError: If a name or a device is unknown, or the value has no static shape.
    """
    known = {wiring.specs[value].name: value for value in (wiring.inputs if kind == "input" else wiring.outputs)}
    found = {}
    for name, each in given.items():
        if name not in known:
            raise FeedError(name, f"the model has no such {kind}; it has {', '.join(known) or 'none'}")
        device = _device_of(name, each, devices)
        if device == "cpu":
            continue
        if wiring.specs[known[name]].kind is not ValueKind.PLANNED:
            raise FeedError(name, f"its shape is not known beforehand, so it cannot be on {device}")
        found[known[name]] = device
    return found


def _device_of(name: str, given: Given, devices: Devices) -> str:
    used = ", ".join(device.name for device in devices) or "the CPU"
    if isinstance(given, str):
        if given != "cpu" and given not in [device.name for device in devices]:
            raise FeedError(name, f"the plan does not use the device {given!r}; it uses {used}")
        return given
    if isinstance(given, Buffer):
        return given.device
    if given is None or isinstance(given, np.ndarray) or not hasattr(given, "__dlpack_device__"):
        return "cpu"
    kind, number = given.__dlpack_device__()
    if kind == _DLPACK_CPU:
        return "cpu"
    device = devices.named((int(kind), int(number)))
    if device is None:
        raise FeedError(name, f"it is on the device {kind}:{number} of DLPack; the plan uses {used}")
    return device.name


def _constant(spec: TensorSpec, tensor: ir.TensorProtocol) -> Buffer:
    if spec.kind is ValueKind.FOREIGN:
        buffer = Buffer(spec)
        array = tensor.numpy()
        if tensor.dtype == ir.DataType.STRING:  # which the IR holds as bytes
            texts = [item.decode() if isinstance(item, bytes) else item for item in array.reshape(-1).tolist()]
            array = np.array(texts, object).reshape(array.shape)
        buffer.put(array)
        return buffer
    # a copy: a weight may be read-only or mapped, and some libraries take neither
    place = _given_or_new(spec, None, allocate)
    place.put(tensor.numpy())
    return place


def _given_or_new(spec: TensorSpec, given: Given, new: Callable[[int], Array]) -> Buffer:
    if given is None or isinstance(given, str):
        if spec.kind is not ValueKind.PLANNED:
            return Buffer(spec)
        return Buffer(spec, new(spec.nbytes).view(spec.numpy_dtype).reshape(spec.static_shape))
    if spec.kind is ValueKind.PLANNED:
        _check_fits(spec, given)
        return Buffer(spec, given)
    if spec.kind is ValueKind.FOREIGN and spec.dtype not in (None, ir.DataType.STRING):
        _check_fits(spec, given)
    buffer = Buffer(spec)
    buffer.put(given)
    return buffer


def _check_fits(spec: TensorSpec, given: Given) -> None:
    """Check that kernels can read and write an array at its address; its unknown extents may be any.

    Raises:
        FeedError: If not.
    """
    is_planned = spec.kind is ValueKind.PLANNED
    extents = None if spec.shape is None else ["?" if extent is None else str(extent) for extent in spec.shape]
    shape = " of any shape" if extents is None else f"[{', '.join(extents)}]"
    wanted = f"{spec.numpy_dtype}{shape}, C-contiguous" + (", aligned and writeable" if is_planned else " and aligned")
    if not isinstance(given, np.ndarray):
        raise FeedError(spec.name, f"bind a NumPy array of {wanted}, not {type(given).__name__}")
    flags = given.flags
    fits = spec.shape is None or (
        given.ndim == len(spec.shape)
        and all(extent in (None, own) for extent, own in zip(spec.shape, given.shape, strict=True))
    )
    lacks = [
        word
        for word, has in (
            ("not C-contiguous", flags.c_contiguous),
            ("not aligned", flags.aligned),
            ("read-only", flags.writeable or not is_planned),
        )
        if not has
    ]
    if given.dtype != spec.numpy_dtype or not fits or lacks:
        got = ", ".join([f"{given.dtype}{list(given.shape)}", *lacks])
        raise FeedError(spec.name, f"bind an array of {wanted}; got {got}. `run` copies what it is given")


def _reshaped(place: Buffer, spec: TensorSpec) -> Buffer:
    """Return a buffer for another value on the same memory; only planned values share memory."""
    if place.device != "cpu":
        return Buffer.at(spec, device=place.device, pointer=place.pointer, keeps=place)
    return Buffer(spec, place.array.reshape(spec.static_shape))


def _check_overlap(inputs: Mapping[str, Given], outputs: Mapping[str, Given]) -> None:
    """Check that no array that is written shares memory with another.

    Raises:
        FeedError: If one may: what lies between the elements of an array with strides counts, too.
    """
    spans = sorted(
        (*_span(array), is_written, name)
        for is_written, arrays in ((False, inputs), (True, outputs))
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and array.nbytes
    )
    ends: dict[bool, tuple[int, str]] = {False: (0, ""), True: (0, "")}  # the furthest so far
    for start, end, is_written, name in spans:
        for was_written in (True, False) if is_written else (True,):
            before, other = ends[was_written]
            if start < before:
                written, beside = (name, other) if is_written else (other, name)
                raise FeedError(
                    written, f"its array shares memory with that of {beside!r}; kernels write no input in place"
                )
        ends[is_written] = max(ends[is_written], (end, name))


def _span(array: Array) -> tuple[int, int]:
    """Return the addresses between which an array lies."""
    if not array.flags.c_contiguous:
        return byte_bounds(array)
    start: int = array.__array_interface__["data"][0]
    return start, start + array.nbytes
