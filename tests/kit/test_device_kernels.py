"""Kernels tried one at a time on a device: their numbers are the library's, and what they must not do is named."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage.reference import evaluate
from collage.setup.inputs.random_arrays import random_inputs
from collage_core.contract import (
    DEVICE_ALIGNMENT_BYTES,
    Artifact,
    BoundCall,
    Buffer,
    BuildContext,
    Device,
    Host,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.errors import DeviceCaptureError, DeviceError, DeviceUseError
from collage_core.fusion import SubGraph, kernel_function
from collage_core.hookspecs import hookimpl
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.registry import Toolchain
from collage_testing import single_matmul
from collage_testing.kit import BoundKernel, DeviceMachine, ExecutingMock, FakeDevice, fake_providers, stream_of
from collage_testing.kit.device_calls import waits
from collage_testing.kit.device_checks import check_sub_graphs
from collage_testing.kit.fake_kernel import load_on_fake

NAME = "made-up:0"
GPU = Device(name=NAME, model="made up", compute_capability="1.0", driver="1", memory_bytes=1 << 30)
HOST = Host(system="Linux", cpu="t", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(GPU,))
PLAIN = Target(toolchain="mock", device=NAME, fingerprint="mock 1")
FP16 = dataclasses.replace(PLAIN, options=(("precision", "fp16"),), exact=False)
ELSEWHERE = dataclasses.replace(PLAIN, device="made-up:1")


def function() -> KernelFunction:
    """A product with a weight."""
    graph = DataflowGraph(single_matmul(m=3, n=5, k=7))
    return kernel_function(SubGraph(graph, graph.all_mask), "product")


def feeds(of: KernelFunction) -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {spec.name: random.normal(size=spec.static_shape).astype(np.float32) for spec in of.inputs}


class Mock(ExecutingMock):
    """One that is right; what tests break is overridden."""

    fields: ClassVar[dict[str, Any]] = {}
    """Of its artifacts."""

    def __init__(self, targets: Sequence[Target] = (PLAIN, FP16, ELSEWHERE)) -> None:
        super().__init__("mock", costs_us={}, operators=["MatMul"], targets=targets)

    @hookimpl
    def collage_lower(  # type: ignore[override]  # a hook takes what it wants of the arguments
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Any:
        answer = super().collage_lower(target, function)
        return answer if isinstance(answer, Unsupported) else self.several(next(answer), build)

    def several(self, artifact: Artifact, build: BuildContext) -> Iterator[Artifact]:
        for number in itertools.count():
            yield dataclasses.replace(artifact, variant=f"v{number}", **self.fields)

    @hookimpl
    def collage_load(self, target: Target, artifact: Artifact, run: RunContext) -> Any:
        return Wrapped(load_on_fake(artifact, run), lambda call, places: self.call(call, run, places))

    def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
        call()


class Wrapped:
    def __init__(self, kernel: Kernel, around: Callable[[BoundCall, Sequence[Buffer]], None]) -> None:
        self.kernel, self.around = kernel, around

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        call = self.kernel.bind(inputs, outputs, workspace)
        return lambda: self.around(call, (*inputs, *outputs))


def machine(kind: Callable[[], Mock] = Mock) -> DeviceMachine:
    device = FakeDevice(NAME)
    return DeviceMachine.fake(Toolchain("mock", kind()), HOST, device)


def bound(on: DeviceMachine, folder: Path, **how: Any) -> tuple[BoundKernel, Any]:
    """The first variant of a product, and what it should give."""
    what = function()
    given = feeds(what)
    [artifact] = on.variants(what, PLAIN, folder, max_variants=1)
    [x], [weight] = given.values(), [what.constant(name) for name in what.constants]
    return on.bound(what, PLAIN, artifact, given, **how), x @ weight


def test_a_kernel_is_run_and_its_outputs_fetched(tmp_path: Path) -> None:
    kernel, right = bound(machine(), tmp_path)

    for _ in range(2):
        [found] = kernel.run()
        np.testing.assert_allclose(found, right, rtol=1e-5)
    np.testing.assert_allclose(kernel.check_replays(3)[0], right, rtol=1e-5)


@pytest.mark.parametrize("aligned", [True, False])
def test_places_are_aligned_as_cores_or_start_an_element_later(aligned: bool, tmp_path: Path) -> None:
    seen: list[Any] = []

    class Looks(Mock):
        def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
            seen.extend(place.pointer % DEVICE_ALIGNMENT_BYTES for place in places)
            call()

    kernel, right = bound(machine(Looks), tmp_path, aligned=aligned)

    np.testing.assert_allclose(kernel.run()[0], right, rtol=1e-5)
    assert set(seen) == {0 if aligned else 4}


def test_weights_live_as_long_as_the_kernel(tmp_path: Path) -> None:
    on = machine()
    kernel, right = bound(on, tmp_path)
    assert isinstance(on.stream.free_bytes, int)
    before = on.stream.free_bytes

    np.testing.assert_allclose(kernel.run()[0], right, rtol=1e-5)
    assert on.stream.free_bytes == before
    del kernel
    assert on.stream.free_bytes == GPU.memory_bytes


def test_variants_are_those_of_a_target_and_as_many_as_are_asked_for(tmp_path: Path) -> None:
    on = machine()

    assert [each.variant for each in on.variants(function(), PLAIN, tmp_path)] == [f"v{n}" for n in range(16)]
    assert len(on.variants(function(), PLAIN, tmp_path, max_variants=2)) == 2


def test_lowering_is_told_of_the_machine_and_what_is_asked_for(tmp_path: Path) -> None:
    seen: list[BuildContext] = []

    class Curious(Mock):
        def several(self, artifact: Artifact, build: BuildContext) -> Iterator[Artifact]:
            seen.append(build)
            return super().several(artifact, build)

    machine(Curious).variants(function(), PLAIN, tmp_path, effort=0, workspace_limit_bytes=7)

    [build] = seen
    assert (build.host, build.launch, build.effort, build.workspace_limit_bytes) == (HOST, "graph", 0, 7)
    assert build.blobs.get("anything") is None


class Refuses(Mock):
    @hookimpl
    def collage_lower(self) -> Unsupported:  # type: ignore[override]  # a hook takes what it wants of the arguments
        return Unsupported("no kernel of 3 rows")


def test_a_refusal_is_said_in_the_toolchains_words(tmp_path: Path) -> None:
    class DoesNotLoad(Mock):
        @hookimpl
        def collage_load(self) -> Unsupported:  # type: ignore[override]  # a hook takes what it wants of the arguments
            return Unsupported("of another version")

    with pytest.raises(AssertionError, match="mock@made-up:0 refuses product: no kernel of 3 rows"):
        machine(Refuses).variants(function(), PLAIN, tmp_path)
    with pytest.raises(AssertionError, match="mock@made-up:0 does not load variant 'v0': of another version"):
        bound(machine(DoesNotLoad), tmp_path)


# What a kernel must not do


class Waits(Mock):
    def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
        call()
        stream_of(run.stream).synchronise()


def test_a_call_that_waits_is_seen(tmp_path: Path) -> None:
    kernel, _ = bound(machine(Waits), tmp_path)

    with pytest.raises(DeviceUseError, match="a kernel's call waits for the stream"):
        kernel.run()


class NotCapturable(Mock):
    fields: ClassVar[dict[str, Any]] = {"capturable": False}


class AtOnce(Mock):
    """Its kernel is done by the host, whatever the stream does: also while it is captured."""

    def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
        call()
        place, device = places[-1], stream_of(run.stream).device
        device.peek(place.pointer, place.spec.static_shape, np.float32)[...] = 1


class Counts(Mock):
    """Adds how often what was enqueued has run."""

    first: ClassVar[int] = 0

    def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
        call()
        place, stream, runs = places[-1], stream_of(run.stream), itertools.count(self.first)

        def add() -> None:
            stream.device.view(place.pointer, place.spec.static_shape, np.float32)[...] += next(runs)

        stream.enqueue("add", add)


class Off(Counts):
    first: ClassVar[int] = 1


class LeavesOneOut(Mock):
    """Writes nothing when a graph of it is launched, so that what was there stays."""

    def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
        if stream_of(run.stream)._captured is None:
            call()


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (NotCapturable, "variant 'v0' does not say that it is capturable"),
        (AtOnce, "variant 'v0' runs while it is captured"),
        (Counts, "variant 'v0': launch 2 gives other bits than the call"),
        (LeavesOneOut, "variant 'v0': launch 1 gives other bits than the call"),
    ],
)
def test_what_a_graph_must_not_do_is_named(kind: type[Mock], complaint: str, tmp_path: Path) -> None:
    kernel, _ = bound(machine(kind), tmp_path)

    with pytest.raises(AssertionError, match=complaint):
        kernel.check_replays(3)


def test_what_may_give_other_bits_may_do_so(tmp_path: Path) -> None:
    class Says(Counts):
        fields: ClassVar[dict[str, Any]] = {"deterministic": False}

    kernel, right = bound(machine(Says), tmp_path)

    np.testing.assert_allclose(kernel.check_replays(3)[0], right + 2, rtol=1e-5)


def test_what_cannot_be_captured_is_an_error(tmp_path: Path) -> None:
    class Allocates(Mock):
        def call(self, call: BoundCall, run: RunContext, places: Sequence[Buffer]) -> None:
            stream_of(run.stream).allocate(16)
            call()

    kernel, _ = bound(machine(Allocates), tmp_path)

    with pytest.raises(DeviceCaptureError, match="allocates while it is captured"):
        kernel.check_replays(3)


# Candidates, by all that the conformance kit looks for


def check(kind: Callable[[], Mock]) -> None:
    graph = DataflowGraph(single_matmul(m=3, n=5, k=7))
    run = evaluate(graph.model, random_inputs(graph, seed=0), conditioned=True)
    check_sub_graphs(machine(kind), [SubGraph(graph, graph.all_mask)], run, PLAIN, tolerance=1e-5)


def test_a_candidate_that_is_right_passes() -> None:
    check(Mock)


@pytest.mark.parametrize(
    ("kind", "complaint"),
    [
        (Off, r"mock@made-up:0, matmul_0: wrong numbers"),
        (Waits, r"mock@made-up:0, matmul_0: DeviceUseError: .*waits for the stream"),
        (Refuses, r"mock@made-up:0, matmul_0: it is refused: no kernel of 3 rows"),
    ],
)
def test_a_candidate_that_is_not_is_named(kind: type[Mock], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check(kind)


# Machines


def test_targets_are_those_of_the_device_and_are_found_by_their_options() -> None:
    on = machine()

    assert on.targets == (PLAIN, FP16)
    assert (on.target(), on.target(precision="fp16")) == (PLAIN, FP16)
    with pytest.raises(
        LookupError, match=r"no target has the options .*tf32.*: mock@made-up:0, mock\(precision=fp16\)"
    ):
        on.target(precision="tf32")


def test_how_often_the_host_waits_is_counted() -> None:
    on = machine()

    with on.calls() as calls:
        on.stream.synchronise()
        on.stream.allocate(8)
        on.stream.synchronise()

    assert len(waits(calls)) == 2


def test_a_device_that_is_there_is_opened_by_its_provider() -> None:
    on = DeviceMachine.real(Toolchain("mock", Mock()), NAME, fake_providers(FakeDevice(NAME)))

    assert isinstance(on, DeviceMachine)
    assert on.is_real
    assert on.host == this_host()
    assert on.stream.name == on.providers.open(NAME).name == NAME
    assert on.target() == PLAIN


@pytest.mark.parametrize(
    ("toolchain", "reason"),
    [
        (ExecutingMock("mock", costs_us={}, unusable="no library"), "no library"),
        (Mock([ELSEWHERE]), "mock has no target on made-up:0, only mock@made-up:1"),
    ],
)
def test_why_nothing_runs_on_a_device_is_an_answer(toolchain: ExecutingMock, reason: str) -> None:
    answer = DeviceMachine.real(Toolchain("mock", toolchain), NAME)

    assert isinstance(answer, Unsupported)
    assert answer.reason.startswith(reason)


def test_a_device_that_is_offered_and_cannot_be_opened_is_no_reason_to_skip() -> None:
    with pytest.raises(DeviceError, match="made-up:0"):
        DeviceMachine.real(Toolchain("mock", Mock()), NAME)
