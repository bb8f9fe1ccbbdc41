"""A run with every buffer fixed: a list of calls without arguments, and the loop over it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.devices.opening import Devices
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Does, Launch, Stretch, stretches
from collage.runtime.profiling import Profile, StepProfile
from collage_core.contract import BoundCall, Buffer, Event
from collage_core.errors import KernelRunError


class BoundRun:
    """One run of an executable, its inputs and outputs fixed in memory.

    Write into `inputs`, call `call`, read `outputs`: nothing is copied or checked on the way. The bound runs of
    one executable share its kernels and its arena, so only one of them may run at a time.

    Args:
        steps: What to call, in order.
        inputs: Place of each graph input, by name.
        outputs: Place of each graph output, by name.
        order: Names of the graph outputs in order; one may come twice.
        owner: What must live as long as the run does.
        devices: Those that take part; None where that is the CPU alone.

    Attributes:
        call: The whole run as one call without arguments. Of an executable of one kernel it is that kernel's
            own bound call: nothing of Collage runs in between, and an error is the kernel's own. Keep this object
            while the call is in use.
        results: Places of the graph outputs, in the model's order.
    """

    __slots__ = ("_devices", "_owner", "_units", "call", "input_buffers", "output_buffers", "results", "steps")

    def __init__(
        self,
        *,
        steps: Sequence[BoundStep],
        inputs: Mapping[str, Buffer],
        outputs: Mapping[str, Buffer],
        order: Sequence[str],
        owner: object = None,
        devices: Devices | None = None,
    ) -> None:
        self._owner = owner
        self.steps = tuple(steps)
        self.input_buffers = inputs
        self.output_buffers = outputs
        self.results = tuple(outputs[name] for name in order)
        self._devices = devices or Devices.none()
        self._units = tuple(
            group[0] if group[0].not_captured else Stretch(self._devices[group[0].device], group)
            for group in stretches(self.steps)
        )
        self.call = self._sequence()

    @property
    def inputs(self) -> dict[str, Any]:
        """Value of each input: for tensors of static shape the array to write into, on its device."""
        return {name: self._shown(buffer) for name, buffer in self.input_buffers.items()}

    @property
    def outputs(self) -> dict[str, Any]:
        """Value of each output after a call; not a copy, so the next call overwrites it."""
        return {name: self._shown(buffer) for name, buffer in self.output_buffers.items()}

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Current launch mode of the kernels on devices, and why some are not in a graph."""
        made = []
        for unit in self._units:
            if isinstance(unit, Stretch):
                made.append(unit.launch)
            elif unit.device != "cpu" and unit.does is Does.KERNEL:
                reason = unit.not_captured
                made.append(Launch(device=unit.device, steps=(unit.name,), kernels=1, mode="eager", reason=reason))
        return tuple(made)

    @property
    def device_work(self) -> DeviceWork:
        """Device work of a run, as currently launched."""
        done = [step.does for step in self.steps]
        return DeviceWork(launches=self.launches, copies=done.count(Does.COPY), synchronisations=done.count(Does.WAIT))

    @property
    def is_settled(self) -> bool:
        """Whether later runs launch device work exactly as the last one did: no stretch remains to be captured."""
        return all(unit.is_settled for unit in self._units if isinstance(unit, Stretch))

    def run(self) -> list[Any]:
        """Run, and return what the outputs hold, in the model's order, uncopied.

        Raises:
            KernelRunError: If a kernel fails; it names the kernel and its nodes.
        """
        self.launch()
        return [self._shown(buffer) for buffer in self.results]

    def launch(self) -> None:
        """Run.

        Raises:
            KernelRunError: If a kernel fails; it names the kernel and its nodes.
        """
        try:
            self.call()
        except KernelRunError:
            raise
        except Exception as error:  # from the only step: the loop explains its own
            raise self.steps[0].failed(error) from error

    def profile(self, runs: int = 20, warmup: int = 3) -> Profile:
        """Run repeatedly with a clock around every step: the host's, and each device's own around what it is given.

        Kernels are called one by one here, also those that runs launch as graphs.

        Args:
            runs: Timed runs.
            warmup: Runs before them.

        Raises:
            KernelRunError: If a kernel fails.
        """
        for _ in range(warmup):
            self.run()
        clock = time.perf_counter_ns
        starts_us = np.zeros((len(self.steps), runs))
        samples_us = np.zeros_like(starts_us)
        for run in range(runs):
            origins = {device.name: _recorded(device.event()) for device in self._devices}
            origins_us = dict.fromkeys(origins, clock() / 1e3)
            points: dict[int, tuple[Event, Event]] = {}
            for index, step in enumerate(self.steps):
                begin = clock()
                try:
                    if step.device == "cpu":
                        step.call()
                    else:
                        device = self._devices[step.device]
                        device.activate()
                        before = _recorded(device.event())
                        step.call()
                        points[index] = before, _recorded(device.event())
                except Exception as error:
                    raise step.failed(error) from error
                starts_us[index, run] = begin / 1e3
                samples_us[index, run] = (clock() - begin) / 1e3
            self._devices.synchronise()
            for index, (before, after) in points.items():
                name = self.steps[index].device
                starts_us[index, run] = origins_us[name] + before.elapsed_us(origins[name])
                samples_us[index, run] = after.elapsed_us(before)
        if starts_us.size:
            starts_us -= starts_us.min()
        return Profile(
            steps=tuple(
                StepProfile(
                    name=step.name,
                    target=step.target,
                    nodes=step.nodes,
                    starts_us=tuple(starts_us[index].tolist()),
                    samples_us=tuple(samples_us[index].tolist()),
                )
                for index, step in enumerate(self.steps)
            )
        )

    def _shown(self, buffer: Buffer) -> Any:
        return buffer.value if buffer.device == "cpu" else self._devices[buffer.device].shown(buffer)

    def _sequence(self) -> BoundCall:
        calls: list[BoundCall] = []
        steps: dict[int, BoundStep] = {}
        active = ""
        for unit in self._units:
            first = unit.steps[0] if isinstance(unit, Stretch) else unit
            call: BoundCall = unit if isinstance(unit, Stretch) else unit.call
            if first.device not in ("cpu", active):
                active = first.device
                call = _in_turn(self._devices[active].activate, call)
            calls.append(call)
            steps[id(call)] = first
        if len(calls) == 1:
            return calls[0]
        in_order = tuple(calls)

        def run_all() -> None:
            # entering `try` is free since Python 3.11, and the failing step is known by what `call` is
            try:
                for call in in_order:
                    call()
            except KernelRunError:
                raise
            except Exception as error:
                raise steps[id(call)].failed(error) from error

        return run_all


def _in_turn(first: BoundCall, second: BoundCall) -> BoundCall:
    def both() -> None:
        first()
        second()

    return both


def _recorded(event: Event) -> Event:
    event.record()
    return event
