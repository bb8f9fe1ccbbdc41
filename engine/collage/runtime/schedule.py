"""Schedule a run on several devices: kernels as wired, with copies between devices and waits for them.

A value has a *home*: the device of the kernel that writes it or, for a model's input, the device where the
caller gives it. Where a kernel on another device reads it, or the caller wants it elsewhere, a `Transfer` makes
a replica there, once per run. Copies between two devices other than the CPU go through host memory. Transfers
and device kernels are only enqueued, so a host step that reads a replica comes after a `Synchronise`; each run
ends with one for every device that has work left. Copies to a device come right after the host step that writes
the value, copies to the host right before the step that reads it. Device work is thus interrupted only by host
steps, and its stretches are as long as possible without changing the order of kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

import onnx_ir as ir

from collage.runtime.arena import Block
from collage.runtime.wiring import Step, Wiring, workspace_name
from collage_core.contract import ValueKind
from collage_core.errors import KernelLoadError

Place: TypeAlias = tuple[ir.Value, str]
"""A root and the device it is on."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """A kernel or a view.

    Attributes:
        step: The step.
        device: Device that runs it and holds its values.
    """

    step: Step
    device: str = "cpu"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """A copy of a root between a device and the CPU.

    Attributes:
        root: The root to copy.
        source: Source device; either this or `target` is `"cpu"`.
        target: Destination device.
    """

    root: ir.Value
    source: str
    target: str

    @property
    def device(self) -> str:
        """Device on whose stream the copy is enqueued."""
        return self.source if self.target == "cpu" else self.target


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CopyOut:
    """A copy into the memory of an output that no kernel writes directly.

    Attributes:
        output: The output; its root is present on the device where the output is wanted.
        device: That device.
    """

    output: ir.Value
    device: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Synchronise:
    """The host waits for a device."""

    device: str


Action: TypeAlias = Compute | Transfer | CopyOut | Synchronise


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Actions of a run, in order.

    Attributes:
        wiring: Steps with the values they read and write.
        actions: In execution order.
        given: Device on which the caller gives an input or wants an output, by value; `"cpu"` where none is named.
        owned: Places that a run writes straight into an output's memory, each with that output.
    """

    wiring: Wiring
    actions: tuple[Action, ...]
    given: Mapping[ir.Value, str]
    owned: Mapping[Place, ir.Value]

    @property
    def devices(self) -> tuple[str, ...]:
        """All participating devices, the CPU first."""
        return ("cpu", *sorted({action.device for action in self.actions} - {"cpu"}))

    def touched(self, action: Action) -> tuple[tuple[Place, ...], tuple[Place, ...]]:
        """Return the places that an action reads, and those that it writes."""
        roots = self.wiring.roots
        match action:
            case Compute(step=step, device=device):
                reads = tuple((roots[value], device) for value in step.reads)
                return reads, tuple((roots[value], device) for value in step.writes)
            case Transfer(root=root, source=source, target=target):
                return ((root, source),), ((root, target),)
            case CopyOut(output=output, device=device):
                return ((roots[output], device),), ()
        return (), ()

    def blocks(self, device: str, workspace_bytes: Mapping[str, int]) -> list[Block]:
        """Return all blocks for the arena of one device: internal values, replicas and workspaces.

        Host memory read by a device is read at an unknown time before the host next waits for that device, so it stays
        alive until then.

        Args:
            device: Device that owns the arena.
            workspace_bytes: Scratch memory by call-site id; a missing one is 0.
        """
        first: dict[ir.Value, int] = {}
        last: dict[ir.Value, int] = {}
        read_by: dict[str, set[ir.Value]] = {}
        blocks = []
        for index, action in enumerate(self.actions):
            reads, writes = self.touched(action)
            for root, where in writes:
                if where == device:
                    first.setdefault(root, index)
                    last[root] = index
            for root, where in reads:
                if where == device:
                    last[root] = index
            if isinstance(action, Transfer) and action.source == device == "cpu":
                read_by.setdefault(action.target, set()).add(action.root)
            if isinstance(action, Synchronise):
                for root in read_by.pop(action.device, ()):
                    last[root] = index
            if isinstance(action, Compute) and action.device == device and action.step.site is not None:
                name = action.step.name
                if size := workspace_bytes.get(name, 0):
                    blocks.append(Block(name=workspace_name(name), nbytes=size, first=index, last=index))
        for root, index in first.items():
            spec = self.wiring.specs[root]
            at_rim = (root, device) in self.owned or (spec.kind is ValueKind.BOUNDED and root in self.wiring.outputs)
            if not at_rim and spec.kind is not ValueKind.FOREIGN:
                blocks.append(Block(name=spec.name, nbytes=spec.nbytes, first=index, last=last[root]))
        return blocks


def schedule(wiring: Wiring, devices: Mapping[str, str], given: Mapping[ir.Value, str] | None = None) -> Schedule:
    """Insert copies and waits between the steps of a wired model.

    Args:
        wiring: The wired model.
        devices: Device of each call site, by its id; the CPU for those not named.
        given: Devices of caller-provided inputs and outputs other than on the CPU; of planned values only.

    Raises:
        KernelLoadError: If a kernel on a device has a value whose shape is not known statically.
    """
    return _Scheduling(wiring, devices, given or {}).done()


class _Scheduling:
    def __init__(self, wiring: Wiring, devices: Mapping[str, str], given: Mapping[ir.Value, str]) -> None:
        self._wiring = wiring
        self._devices = devices
        self._given = given
        self._actions: list[Action] = []
        self._at: dict[ir.Value, list[str]] = {value: [given.get(value, "cpu")] for value in wiring.inputs}
        self._pending: dict[ir.Value, str] = {}
        self._busy: dict[str, None] = {}
        self._wanted: dict[ir.Value, dict[str, None]] = {}
        for step in wiring.steps:
            for value in step.reads:
                self._wanted.setdefault(wiring.roots[value], {})[self._device_of(step)] = None
        for value in wiring.outputs:
            self._wanted.setdefault(wiring.roots[value], {})[given.get(value, "cpu")] = None

    def done(self) -> Schedule:
        for value in self._wiring.inputs:
            self._distribute(value)
        for step in self._wiring.steps:
            self._compute(step)
        owned = self._outputs()
        for device in tuple(self._busy):
            self._synchronise(device)
        return Schedule(wiring=self._wiring, actions=tuple(self._actions), given=self._given, owned=owned)

    def _compute(self, step: Step) -> None:
        device = self._device_of(step)
        roots = [self._wiring.roots[value] for value in step.reads]
        if device == "cpu":
            self._to_host(roots)
        else:
            for value in (*step.reads, *step.writes):
                if (kind := self._wiring.specs[value].kind) is not ValueKind.PLANNED:
                    reason = f"{value.name!r} is {kind.value}; on {device} are values of static shape only"
                    raise KernelLoadError(step.name, step.target, step.nodes, reason)
            for root in roots:
                self._bring(root, device)
            self._busy[device] = None
        self._actions.append(Compute(step=step, device=device))
        for value in step.writes:
            self._at[value] = [device]
            self._distribute(value)

    def _outputs(self) -> dict[Place, ir.Value]:
        """Schedule the copies that move outputs to their devices; return the outputs written there directly."""
        owned: dict[Place, ir.Value] = {}
        copied = []
        outputs = [
            value
            for value in dict.fromkeys(self._wiring.outputs)
            if self._wiring.specs[value].kind is ValueKind.PLANNED
        ]
        for value in outputs:
            root, device = self._wiring.roots[value], self._given.get(value, "cpu")
            made = root in self._at and not (root in self._wiring.inputs and self._at[root][0] == device)
            if made and (root, device) not in owned:
                owned[root, device] = value
            else:
                copied.append(value)
            self._bring(root, device)
        self._to_host([self._wiring.roots[value] for value in copied if self._given.get(value, "cpu") == "cpu"])
        for value in copied:
            device = self._given.get(value, "cpu")
            self._actions.append(CopyOut(output=value, device=device))
            if device != "cpu":
                self._busy[device] = None
        return owned

    def _distribute(self, root: ir.Value) -> None:
        """Copy a value to its devices as soon as the host has it, so that device work is not interrupted later."""
        if self._at[root][0] == "cpu":
            for device in self._wanted.get(root, ()):
                self._bring(root, device)

    def _to_host(self, roots: list[ir.Value]) -> None:
        for root in roots:
            self._bring(root, "cpu")
        for device in dict.fromkeys(self._pending[root] for root in roots if root in self._pending):
            self._synchronise(device)

    def _bring(self, root: ir.Value, device: str) -> None:
        if root not in self._at or device in self._at[root]:  # constants are where they are read from the start
            return
        if device != "cpu":
            self._to_host([root])
        source = self._at[root][0] if device == "cpu" else "cpu"
        transfer = Transfer(root=root, source=source, target=device)
        self._actions.append(transfer)
        self._at[root].append(device)
        self._busy[transfer.device] = None
        if device == "cpu":
            self._pending[root] = source

    def _synchronise(self, device: str) -> None:
        self._actions.append(Synchronise(device=device))
        self._busy.pop(device, None)
        self._pending = {root: source for root, source in self._pending.items() if source != device}

    def _device_of(self, step: Step) -> str:
        return "cpu" if step.site is None else self._devices.get(step.name, "cpu")
