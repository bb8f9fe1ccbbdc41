"""A captured plan over kernels of every toolchain of a device: the same bits, no waiting, nothing compiled elsewhere.

Each test is run on a fake device, on one with NVIDIA's toolchains over emulations of their libraries, and with `-m gpu`
on NVIDIA's by the toolchains that are usable there.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collage.reference import discrepancy_of, evaluate
from collage_core.contract import Device, Host, Unsupported
from collage_core.errors import DeviceUnavailableError
from collage_core.registry import Registry, Toolchain
from collage_testing.kit import DeviceMachine, FakeDevice, fake_providers
from collage_testing.kit.device_calls import last_work, launches, waits
from tests.from_source import ROOT
from tests.integration.device import emulations, toolchains
from tests.integration.device.models import convolved, layers
from tests.integration.device.place import Place, Plan, plain

ON_GPU = pytest.mark.gpu("cupy")


def machines(toolchains: Iterable[Toolchain], host: Host, device: FakeDevice) -> dict[str, DeviceMachine]:
    return {each.name: DeviceMachine.fake(each, host, device) for each in toolchains}


def host_with(device: Device) -> Host:
    return Host(system="", cpu="", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(device,))


def fake() -> Place:
    device = Device(name="fake:0", model="fake", compute_capability="1.0", driver="1", memory_bytes=1 << 30)
    usable = [Toolchain(each.name, each) for each in (toolchains.far, toolchains.beyond)]
    return Place(machines=machines(usable, host_with(device), toolchains.device), replays=50, model=layers)


@contextlib.contextmanager
def emulated() -> Iterator[Place]:
    """NVIDIA's own toolchains over emulations of their libraries."""
    device = FakeDevice("cuda:0")
    host = host_with(
        Device(name="cuda:0", model="NVIDIA H200", compute_capability="9.0", driver="580.65.06", memory_bytes=141 << 30)
    )
    with emulations.plugins(device) as plugins:
        usable = [Toolchain(name, plugin) for name, plugin in plugins.items()]
        yield Place(
            machines=machines(usable, host, device), replays=8, model=convolved, providers=fake_providers(device)
        )


@functools.cache
def cuda() -> Place:
    """Every toolchain that is installed and has a plain target on the GPU; the same for all tests, to compile once."""
    found, reasons = {}, []
    for name, toolchain in Registry.discover().toolchains.items():
        machine = DeviceMachine.real(toolchain)
        if isinstance(machine, Unsupported):
            reasons.append(f"{name}: {machine.reason}")
        elif plain(machine):
            found[name] = machine
    if not found:
        pytest.skip(f"no toolchain here runs on cuda:0: {'; '.join(reasons) or 'none is installed'}")
    return Place(machines=found, replays=1000, model=convolved)


@contextlib.contextmanager
def traced(place: Place) -> Iterator[list[str]]:
    """What the block asks of the device."""
    with contextlib.ExitStack() as stack:
        try:
            calls = stack.enter_context(place.machine.calls())
        except DeviceUnavailableError as error:
            pytest.skip(str(error))
        yield calls


@pytest.fixture(scope="module")
def emulation(installed: None) -> Iterator[Place]:
    with emulated() as place:
        yield place


FAKE, CUDA = pytest.param("fake", id="fake"), pytest.param("cuda", id="cuda", marks=ON_GPU)


@pytest.fixture(params=[FAKE, pytest.param("emulation", id="emulated"), CUDA])
def place(request: pytest.FixtureRequest) -> Place:
    """With toolchains of this process."""
    made: Place = request.getfixturevalue("emulation") if request.param == "emulation" else MADE[request.param]()
    return made


@pytest.fixture(params=[FAKE, CUDA])
def installed_place(request: pytest.FixtureRequest) -> Place:
    """With toolchains that other processes have, too."""
    return MADE[request.param]()


MADE: dict[str, Callable[[], Place]] = {"fake": fake, "cuda": cuda}


def check(plan: Plan, feeds: dict[str, Any], y: Any) -> None:
    model = plan.place.model()
    [name] = [str(value.name) for value in model.graph.outputs]
    assert discrepancy_of(np.asarray(y), evaluate(model, feeds).values[name]).error < 1e-4


@pytest.mark.guards(
    "a captured plan is run a thousand times",
    "the same bits each time, unless a kernel says otherwise of itself; each run is of the inputs it finds "
    "(tested on GPUs too)",
    area="devices",
)
def test_kernels_of_all_toolchains_are_one_graph_and_give_the_same_bits_each_time(place: Place, tmp_path: Path) -> None:
    plan = place.plan(tmp_path)
    bound = plan.session().bind(place.inputs(1))

    bits = []
    for _ in range(2 + place.replays):  # one to warm up, one that captures
        [y] = bound.run()
        bits.append(y.tobytes())

    assert min(plan.dealt.values()) > 0
    assert set(plan.dealt) == set(place.targets)
    assert [(each.mode, len(each.steps), each.reason) for each in bound.launches] == [("graph", plan.steps, "")]
    check(plan, place.inputs(1), y)
    if plan.deterministic:
        assert set(bits) == {bits[0]}


@pytest.mark.guards("a captured plan is run a thousand times")
def test_a_replay_is_of_the_inputs_it_finds(place: Place, tmp_path: Path) -> None:
    plan = place.plan(tmp_path)
    session = plan.session()

    for seed in range(5):
        [y] = session.run(None, place.inputs(seed))
        check(plan, place.inputs(seed), y)


@pytest.mark.guards(
    "a run whose kernels are all on a device",
    "the host waits once, when everything is on its way (tested on GPUs too, where CUPTI traces every driver call)",
    area="devices",
)
@pytest.mark.parametrize("launch", ["graph", "eager"])
def test_the_host_waits_once_when_all_is_on_its_way(place: Place, launch: str, tmp_path: Path) -> None:
    plan = place.plan(tmp_path, launch)
    bound = plan.session().bind()  # memory of its own, which is pinned
    bound.inputs["x"][...] = place.inputs(2)["x"]
    for _ in range(3):
        bound.run()

    with traced(place) as calls:
        [y] = bound.run()

    check(plan, place.inputs(2), y)
    made = launches(calls)
    # of a graph, one; else one for each kernel, or more: a library may split a product
    assert made == ["graph"] if launch == "graph" else len(made) >= plan.steps and set(made) == {"kernel"}, calls
    [wait] = waits(calls)
    assert wait > last_work(calls), calls


def test_a_wait_inside_is_seen(tmp_path: Path) -> None:
    """A copy into memory of the caller's own, which is not pinned, waits; so the test above can fail."""
    place = fake()
    bound = place.plan(tmp_path).session().bind(outputs={"add_0": np.zeros((8, 16), np.float32)})

    with traced(place) as calls:
        bound.run()

    assert [calls[each] for each in waits(calls)] == ["pageable", "synchronise"]


@pytest.mark.guards(
    "a package of kernels on a device, in a new process",
    "runs without lowering or compiling anything itself; the driver makes code of the few instructions by"
    " which `cublas(precision=fp16)` rounds its inputs, TensorRT for RTX that of an engine when it first "
    "runs (tested on GPUs too)",
    area="devices",
)
def test_a_package_is_run_by_a_new_process_without_compiling(installed_place: Place, tmp_path: Path) -> None:
    place = installed_place
    plan = place.plan(tmp_path)
    [here] = plan.session().run(None, place.inputs(3))
    package, given, made, cache = (tmp_path / name for name in ("p.collage", "x.npz", "y.npz", "cache"))
    plan.save(package)
    np.savez(given, **dict[str, Any](place.inputs(3)))
    cache.mkdir()
    before = toolchains.noted()
    # CUDA compiles no PTX then, and what CuPy or Triton compiled would be left in its cache
    nothing = {"CUDA_DISABLE_PTX_JIT": "1", "CUPY_CACHE_DIR": str(cache), "TRITON_CACHE_DIR": str(cache)}

    done = subprocess.run(
        [sys.executable, "-P", "-m", "tests.integration.device.elsewhere", str(package), str(given), str(made)],
        cwd=ROOT,
        env={**os.environ, **nothing},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["launches"] == [[place.device, "graph", plan.steps, ""]]
    assert facts["substitutes"] == 0
    assert toolchains.noted() == before
    assert not list(cache.rglob("*"))
    assert not {"triton", "torch"} & set(facts["modules"])
    with np.load(made) as outputs:
        [there] = outputs.values()
    if plan.deterministic:
        assert there.tobytes() == here.tobytes()
