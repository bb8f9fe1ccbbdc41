"""A run on a device leaves the host waiting once, at its end: shown by what is asked of the device's stream."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.devices.opening import Devices
from collage.devices.providers import Providers
from collage.runtime import BoundRun, BoundStep, Does
from collage.runtime.session import Session
from collage_core.contract import DeviceStream
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_testing.kit import FakeDevice
from tests.engine.runtime.fakes import CPU, build, on, random_split, split

LINKS, NBYTES = 5, 1 << 10
WAITS = ("synchronise", "pageable", "allocate", "capture")


class Traced:
    """A stream with what is asked of it written down: all a run could make the host wait by."""

    def __init__(self, stream: DeviceStream) -> None:
        self._stream = stream
        self.trace: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stream, name)
        if not callable(found):
            return found

        def noted(*arguments: Any) -> Any:
            self.trace.append(name)
            answer = found(*arguments)
            return TracedGraph(answer, self.trace) if name == "capture" else answer

        return noted


class TracedGraph:
    def __init__(self, graph: Any, trace: list[str]) -> None:
        self._graph = graph
        self._trace = trace

    def launch(self) -> None:
        self._trace.append("launch")
        self._graph.launch()


def check_one_wait(stream: DeviceStream) -> None:
    """A chain of operations on any device, as the runtime binds them: in, a graph of all, out, and one wait."""
    traced = Traced(stream)
    given, made = (stream.allocate_host(NBYTES) for _ in range(2))
    places = [stream.allocate(NBYTES) for _ in range(LINKS + 1)]

    def step(name: str, does: Does, call: Callable[[], None], why: str = "it copies to the host") -> BoundStep:
        device = "cpu" if does is Does.WAIT else stream.name
        return BoundStep(name=name, target="t", nodes=(), call=call, device=device, not_captured=why, does=does)

    def link(number: int) -> Callable[[], None]:
        source, target = places[number].pointer, places[number + 1].pointer
        return lambda: traced.copy(target, source, NBYTES)

    steps = [
        step("in", Does.COPY, lambda: traced.write(places[0].pointer, given)),
        *(step(f"k{number}", Does.KERNEL, link(number), "") for number in range(LINKS)),
        step("out", Does.COPY, lambda: traced.read(made, places[-1].pointer)),
        step("wait", Does.WAIT, traced.synchronise, "it waits"),
    ]
    devices = Devices(lambda name: traced)
    bound = BoundRun(steps=steps, inputs={}, outputs={}, order=[], devices=devices)
    for run in range(4):
        given[...] = np.arange(NBYTES) % (7 + run)
        traced.trace.clear()
        bound.run()
        np.testing.assert_array_equal(made, given)

    asked = [name for name in traced.trace if name != "activate"]
    assert asked == ["write", "launch", "read", "synchronise"]
    work = bound.device_work
    assert (work.graph_launches, work.eager_launches, work.copies, work.synchronisations) == (1, 0, 2, 1)
    assert [(launch.mode, launch.kernels, launch.reason) for launch in work.launches] == [("graph", LINKS, "")]


@pytest.mark.parametrize("eager", [False, True])
def test_a_run_on_a_fake_device_waits_once(eager: bool) -> None:
    check_one_wait(FakeDevice(eager=eager).open("fake:0"))


@pytest.mark.gpu("cupy")
def test_a_run_on_a_gpu_waits_once() -> None:
    check_one_wait(Providers.discover().open("cuda:0"))


@pytest.mark.parametrize("seed", range(6))
def test_a_whole_model_on_a_device_waits_at_the_end_of_a_run_and_nowhere_else(
    random_model: Callable[..., ir.Model], seed: int
) -> None:
    model, device, rng = random_model(seed, 8), FakeDevice(), random.Random(seed)
    fake = on("fake:0")
    everywhere = split(model, dict.fromkeys(DataflowGraph(model).names, fake))
    session = Session(build(everywhere, [fake], device, capturable=lambda site: rng.random() < 0.7))
    feeds = {name: np.ones((4, 4), np.float32) for name in "xz"}
    session.run(None, feeds)
    work = session.device_work()
    device.log.clear()

    session.run(None, feeds)

    asked = [kind for kind in device.kinds() if kind != "ran"]
    assert [kind for kind in asked if kind in WAITS] == ["synchronise"]
    assert asked[-1] == "synchronise"
    assert asked.count("launch") == work.graph_launches
    assert asked.count("kernel") == work.eager_launches


@pytest.mark.parametrize("seed", range(6))
def test_between_kernels_of_two_places_the_host_waits_only_before_it_reads(
    random_model: Callable[..., ir.Model], seed: int
) -> None:
    model, device, fake = random_model(seed, 8), FakeDevice(), on("fake:0")
    session = Session(build(random_split(model, seed, [CPU, fake, fake]), [fake], device))
    feeds = {name: np.ones((4, 4), np.float32) for name in "xz"}
    session.run(None, feeds)
    work = session.device_work()
    device.log.clear()

    session.run(None, feeds)

    asked = [kind for kind in device.kinds() if kind != "ran"]
    assert asked.count("synchronise") == work.synchronisations
    # each wait is for a value that the host reads then, and the last one for the end
    assert all(asked[at - 1] == "read" for at, kind in enumerate(asked[:-1]) if kind == "synchronise")
    assert not set(asked) & {"pageable", "allocate", "capture"}
