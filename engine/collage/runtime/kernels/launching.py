"""Stretches of a run on one device, captured as a graph of it after one run that warms them up.

A stretch is as many consecutive steps on one device as may be captured: kernels whose artifacts say so, of targets
that do not ask for `launch=eager`, and copies within the device. The first run makes each call one by one: libraries
load code and choose algorithms then, and the values are real, which those a run before the first would meet are not.
The second run captures and launches; every later one launches. What cannot be captured is called one by one, for good,
and the reason is kept.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Iterable, Sequence

from collage.devices.opening import is_lost
from collage_core.contract import BoundCall, DeviceStream
from collage_core.errors import KernelRunError


class Does(enum.Enum):
    """What a step of a run does."""

    KERNEL = "kernel"
    COPY = "copy"
    """It moves a value to, from or within a device."""
    WAIT = "wait"
    """The host waits for a device."""
    HOST = "host"
    """A view, or a copy within the host's memory."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BoundStep:
    """One call and what it is, for profiles and errors.

    Attributes:
        name: Call-site id, or what the host or a copy does.
        target: Name of the target that runs it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        call: The call.
        device: Where it is enqueued; `"cpu"` if it is done when it returns.
        not_captured: Why it is no part of a device's graph; empty if it may be.
        does: What kind of step it is.
    """

    name: str
    target: str
    nodes: tuple[str, ...]
    call: BoundCall
    device: str = "cpu"
    not_captured: str = "it runs on the CPU"
    does: Does = Does.KERNEL

    def failed(self, error: Exception) -> KernelRunError:
        """The error to raise when the call raised `error`."""
        reason = f"{type(error).__name__}: {error}".rstrip(": .")
        return KernelRunError(self.name, self.target, self.nodes, reason)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How kernels of a device are launched in a run.

    Attributes:
        device: The device.
        steps: Names of the steps, in order.
        kernels: How many of them are kernels.
        mode: `"graph"` or `"eager"`.
        reason: Why not as a graph; empty if as one.
    """

    device: str
    steps: tuple[str, ...]
    kernels: int
    mode: str
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWork:
    """What a run has devices do.

    Attributes:
        launches: How kernels are launched there, in order.
        copies: Copies to, from and within devices, those in graphs included.
        synchronisations: How often the host waits.
    """

    launches: tuple[Launch, ...] = ()
    copies: int = 0
    synchronisations: int = 0

    @property
    def graph_launches(self) -> int:
        """Graphs launched."""
        return sum(launch.mode == "graph" for launch in self.launches)

    @property
    def eager_launches(self) -> int:
        """Kernels launched one by one."""
        return sum(launch.kernels for launch in self.launches if launch.mode == "eager")


def stretches(steps: Sequence[BoundStep]) -> list[tuple[BoundStep, ...]]:
    """The steps in order, those together that may be captured as one graph."""
    found: list[tuple[BoundStep, ...]] = []
    for device, group in itertools.groupby(steps, lambda step: "" if step.not_captured else step.device):
        together = tuple(group)
        found += [together] if device else [(step,) for step in together]
    return found


class Stretch:
    """Consecutive steps of one device as one call.

    Args:
        device: The device.
        steps: The steps.
    """

    __slots__ = ("_device", "_graph", "_now", "_reason", "steps")

    def __init__(self, device: DeviceStream, steps: Iterable[BoundStep]) -> None:
        self._device = device
        self._graph: object = None
        self._reason = "it is captured in the second run"
        self._now: BoundCall = self._warm_up
        self.steps = tuple(steps)

    def __call__(self) -> None:
        """Enqueues the steps.

        Raises:
            KernelRunError: If one of them fails; of a graph, the first stands for all.
        """
        try:
            self._now()
        except KernelRunError:
            raise
        except Exception as error:
            raise self.steps[0].failed(error) from error

    @property
    def launch(self) -> Launch:
        """How it goes by now."""
        names = tuple(step.name for step in self.steps)
        mode = "eager" if self._graph is None else "graph"
        kernels = sum(step.does is Does.KERNEL for step in self.steps)
        return Launch(device=self._device.name, steps=names, kernels=kernels, mode=mode, reason=self._reason)

    @property
    def is_settled(self) -> bool:
        """Whether later runs launch it as this one did."""
        return self._graph is not None or self._now == self._eager

    def _warm_up(self) -> None:
        self._eager()
        self._now = self._capture

    def _capture(self) -> None:
        try:
            graph = self._device.capture(self._eager)
        except Exception as error:  # whatever a kernel does that cannot be captured
            if is_lost(error):
                raise
            self._reason = f"it could not be captured: {' '.join(str(error).split())}"
            self._now = self._eager
            self._eager()
            return
        self._graph, self._reason, self._now = graph, "", graph.launch
        graph.launch()

    def _eager(self) -> None:
        for step in self.steps:
            try:
                step.call()
            except Exception as error:
                raise step.failed(error) from error
