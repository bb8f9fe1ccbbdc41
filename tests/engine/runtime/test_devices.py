"""Plans split between the CPU and a device that forgives nothing."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from collage.runtime import Lowered
from collage.runtime.kernels.launching import Stretch
from collage.runtime.session import Session
from collage_core.contract import Target
from collage_core.errors import DeviceLostError, DeviceMemoryError, FeedError, KernelLoadError, KernelRunError
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.passes.call_sites import CallSite
from collage_testing.kit import FakeArray, FakeDevice
from tests.engine.runtime.fakes import CPU, build, on, random_split, split
from tests.engine.runtime.mocks import reference

Parse = Callable[[str], ir.Model]
FAKE = on("fake:0")
MIXED = """g (float[2,3] x) => (float[2,3] y) <float[3] w = {1.0, -2.0, 3.0}> {
    [a] a = Add(x, w)
    [b] b = Neg(a)
    [c] c = Exp(b)
    [d] d = Add(c, w)
    [e] y = Mul(d, a)
}"""


def draws(seed: int, shape: tuple[int, ...] = (2, 3), names: str = "x") -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name in names}


def mixed(parsed: Parse, device: FakeDevice, **options: Any) -> tuple[ir.Model, Session]:
    model = parsed(MIXED)
    return model, Session(build(split(model, dict.fromkeys("abde", FAKE)), [FAKE], device, **options))


@pytest.mark.parametrize("seed", range(10))
def test_a_random_split_computes_what_the_model_does(random_model: Callable[..., ir.Model], seed: int) -> None:
    eager = seed % 2 == 1  # as early as a device may, or as late
    model = random_model(seed, 8)
    fakes = [on("fake:0"), on("fake:1", launch="eager")]
    devices = [FakeDevice(target.device, eager=eager) for target in fakes]
    rng = random.Random(seed)
    session = Session(
        build(random_split(model, seed, [CPU, *fakes]), fakes, *devices, capturable=lambda site: rng.random() < 0.7)
    )

    for run in range(4):  # one to warm up, one that captures, two that replay
        feeds = draws(100 * seed + run, (4, 4), "xz")
        for got, expected in zip(session.run(None, feeds), reference(model, feeds), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_the_host_waits_where_it_needs_a_value_and_at_the_end(parsed: Parse) -> None:
    device = FakeDevice()
    _, session = mixed(parsed, device, capturable=False)
    device.log.clear()

    session.run(None, draws(0))

    seen = [each for each in device.kinds() if each != "ran"]
    assert seen == [
        "write",
        "kernel",
        "kernel",
        "read",
        "synchronise",
        "write",
        "kernel",
        "kernel",
        "read",
        "synchronise",
    ]


def test_a_missing_wait_would_show(parsed: Parse) -> None:
    device = FakeDevice()
    model, session = mixed(parsed, device)
    bound = session.bind()
    broken = [step for step in bound.steps if step.name != "synchronise fake:0"]
    bound.inputs["x"][...] = draws(0)["x"]
    for step in broken:
        step.call()
    session.bind().run()  # waits

    [expected] = reference(model, draws(0))
    assert not np.allclose(bound.outputs["y"], expected)


def test_stretches_become_graphs_in_the_second_run(parsed: Parse) -> None:
    device = FakeDevice()
    model, session = mixed(parsed, device)
    bound = session.bind()
    launches = []
    for seed in range(3):
        bound.inputs["x"][...] = draws(seed)["x"]
        device.log.clear()
        [y] = bound.run()
        launches.append(device.kinds("kernel", "capture", "launch"))
        np.testing.assert_array_equal(y, reference(model, draws(seed))[0])

    assert launches == [["kernel"] * 4, ["capture", "kernel", "kernel", "launch"] * 2, ["launch"] * 2]
    assert [(each.mode, len(each.steps), each.reason) for each in bound.launches] == [("graph", 2, "")] * 2


def test_what_a_run_has_devices_do_is_counted_against_what_they_log(parsed: Parse) -> None:
    device = FakeDevice()
    model = split(parsed(MIXED), dict.fromkeys("abde", FAKE))
    session = Session(build(model, [FAKE], device, capturable=lambda site: site.nodes != ("d",)))
    session.run(None, draws(0))

    work = session.device_work()  # settles it
    device.log.clear()
    session.run_bound()

    # a and b are a graph, d is launched by itself, and e alone is one again
    assert [(each.mode, each.kernels) for each in work.launches] == [("graph", 2), ("eager", 1), ("graph", 1)]
    assert (work.graph_launches, work.eager_launches) == (2, 1)
    assert [len(device.kinds(kind)) for kind in ("launch", "kernel")] == [2, 1]
    assert work.copies == len(device.kinds("write", "read", "copy")) == 4
    assert work.synchronisations == len(device.kinds("synchronise")) == 2


def test_a_copy_within_a_graph_is_a_copy_and_no_kernel(parsed: Parse) -> None:
    model = parsed("g (float[4] x) => (float[4] u, float[4] v) { v = Neg(x) u = Identity(v) }")
    device = FakeDevice()
    session = Session(build(split(model, dict.fromkeys(DataflowGraph(model).names, FAKE)), [FAKE], device))
    bound = session.bind({"x": FakeArray.of(device, np.ones(4, np.float32))}, {"u": "fake:0", "v": "fake:0"})
    for _ in range(2):
        bound.run()

    [launch] = bound.launches
    assert (launch.mode, len(launch.steps) - launch.kernels) == ("graph", bound.device_work.copies)
    assert bound.is_settled


def test_on_the_cpu_devices_do_nothing(parsed: Parse) -> None:
    work = Session(build(split(parsed(MIXED), {}), [])).device_work()

    assert (work.launches, work.copies, work.synchronisations) == ((), 0, 0)


def test_what_cannot_be_captured_splits_a_stretch_and_says_why(parsed: Parse) -> None:
    model = parsed(MIXED)
    executable = build(
        split(model, dict.fromkeys("abcde", FAKE)), [FAKE], FakeDevice(), capturable=lambda site: site.nodes != ("c",)
    )
    bound = executable.bind()
    for _ in range(2):
        bound.run()

    assert [(each.mode, len(each.steps), each.reason) for each in bound.launches] == [
        ("graph", 2, ""),
        ("eager", 1, "its artifact is not capturable"),
        ("graph", 2, ""),
    ]


def test_a_target_may_ask_to_be_launched_one_by_one(parsed: Parse) -> None:
    eager = on("fake:0", launch="eager")
    device = FakeDevice()
    bound = build(split(parsed(MIXED), dict.fromkeys("abcde", eager)), [eager], device).bind()
    for _ in range(3):
        bound.run()

    assert not device.kinds("capture")
    assert {each.reason for each in bound.launches} == {"its target asks for launch=eager"}


def test_a_capture_that_fails_leaves_the_stretch_eager_and_right(parsed: Parse) -> None:
    device = FakeDevice()
    model, session = mixed(parsed, device)
    bound = session.bind()
    stretch = next(unit for unit in bound._units if isinstance(unit, Stretch))
    first = stretch.steps[0].call

    def allocating() -> None:
        if stretch._device._captured is not None:  # type: ignore[attr-defined]
            stretch._device.allocate(16)
        first()

    object.__setattr__(stretch.steps[0], "call", allocating)
    for seed in range(4):
        bound.inputs["x"][...] = draws(seed)["x"]
        [y] = bound.run()
        np.testing.assert_array_equal(y, reference(model, draws(seed))[0])

    assert [each.mode for each in bound.launches] == ["eager", "graph"]
    assert "a call allocates while it is captured" in bound.launches[0].reason


def test_weights_are_on_the_device_once(parsed: Parse) -> None:
    device = FakeDevice()
    _, session = mixed(parsed, device)
    before = device.kinds("allocate")
    clone = session.clone()

    # the weight, and the arena; of the clone the arena
    assert before == ["allocate"] * 2
    assert device.kinds("allocate") == ["allocate"] * 3
    np.testing.assert_array_equal(clone.run(None, draws(1))[0], session.run(None, draws(1))[0])


def test_memory_is_given_back_with_the_last_session(parsed: Parse) -> None:
    device = FakeDevice()
    _, session = mixed(parsed, device)
    session.run(None, draws(0))
    session.run(None, draws(0))
    assert device.allocated > 0

    del session
    gc.collect()
    assert device.allocated == 0


def test_arrays_of_the_device_are_read_and_written_where_they_are(parsed: Parse) -> None:
    device = FakeDevice()
    model = parsed(MIXED)
    session = Session(build(split(model, dict.fromkeys("abcde", FAKE)), [FAKE], device))
    feeds = draws(3)
    x = FakeArray.of(device, feeds["x"])
    y = FakeArray.of(device, np.zeros((2, 3), np.float32))
    bound = session.bind({"x": x}, {"y": y})
    device.log.clear()

    for _ in range(3):
        [shown] = bound.run()

    assert not device.kinds("write", "read", "copy", "pageable")
    assert shown.pointer == y.pointer
    np.testing.assert_array_equal(y.get(), reference(model, feeds)[0])


def test_a_device_s_name_asks_for_an_array_there(parsed: Parse) -> None:
    device = FakeDevice()
    model = parsed(MIXED)
    session = Session(build(split(model, dict.fromkeys("abcde", FAKE)), [FAKE], device))
    bound = session.bind(outputs={"y": "fake:0"})
    bound.inputs["x"][...] = draws(4)["x"]

    [y] = bound.run()

    np.testing.assert_array_equal(y.get(), reference(model, draws(4))[0])
    with pytest.raises(FeedError, match="the plan does not use the device 'fake:7'; it uses fake:0"):
        session.bind(outputs={"y": "fake:7"})


def test_one_output_may_be_on_the_device_twice(parsed: Parse) -> None:
    model = parsed(
        "g (float[4] x) => (float[2,2] u, float[4] v) <int64[2] s = {2, 2}> { v = Neg(x) u = Reshape(v, s) }"
    )
    device = FakeDevice()
    node = DataflowGraph(model).names[0]
    session = Session(build(split(model, {node: FAKE}), [FAKE], device))
    x = np.array([1, 2, 3, 4], np.float32)
    bound = session.bind({"x": x}, {"u": "fake:0", "v": "fake:0"})

    u, v = bound.run()

    np.testing.assert_array_equal(u.get(), -x.reshape(2, 2))
    np.testing.assert_array_equal(v.get(), -x)
    assert u.pointer != v.pointer


def test_a_caller_s_own_output_costs_a_wait_but_no_wrong_number(parsed: Parse) -> None:
    device = FakeDevice()
    model, session = mixed(parsed, device)
    y = np.zeros((2, 3), np.float32)
    bound = session.bind(draws(5), {"y": y})
    device.log.clear()

    bound.run()

    assert device.kinds("pageable") == ["pageable"]
    np.testing.assert_array_equal(y, reference(model, draws(5))[0])


def test_a_profile_has_the_device_s_own_times(parsed: Parse) -> None:
    _, session = mixed(parsed, FakeDevice())

    profile = session.profile(draws(0), runs=2)

    kernels = [step for step in profile.steps if step.target == FAKE.name]
    assert [step.samples_us for step in kernels] == [(1.0, 1.0)] * 4
    assert [step.name for step in profile.steps if step.name.startswith("device_copy")] == [
        "device_copy x to fake:0",
        "device_copy b to cpu",
        "device_copy c to fake:0",
        "device_copy y to cpu",
    ]


def test_a_device_too_small_says_so(parsed: Parse) -> None:
    with pytest.raises(DeviceMemoryError, match=r"device fake:0: .* bytes were asked for.*smaller inputs"):
        mixed(parsed, FakeDevice(memory_bytes=64))


def test_weights_that_do_not_fit_are_the_kernel_s_reason(parsed: Parse) -> None:
    with pytest.raises(KernelLoadError, match="12 bytes were asked for, 8 of 8 are free"):
        mixed(parsed, FakeDevice(memory_bytes=8))


@pytest.mark.guards("a package does not fit on the device")
def test_what_a_device_has_no_room_for_is_not_lowered_again(parsed: Parse) -> None:
    asked: list[str] = []

    def relower(site: CallSite, target: Target) -> Iterator[Lowered]:
        asked.append(site.name)
        raise AssertionError

    with pytest.raises(KernelLoadError, match="bytes were asked for") as seen:
        mixed(parsed, FakeDevice(memory_bytes=8), relower=relower)
    assert asked == []
    assert ".." not in str(seen.value)


def test_a_device_that_is_lost_ends_the_run_with_its_reason(parsed: Parse) -> None:
    device = FakeDevice()
    _, session = mixed(parsed, device)
    for run in range(3):
        if run == 1:
            device.lost_after = device._asked + 3
        if run == 0:
            session.run(None, draws(0))
            continue
        with pytest.raises(KernelRunError, match="it does not answer any more") as raised:
            session.run(None, draws(0))
        assert isinstance(raised.value.__cause__, DeviceLostError)
