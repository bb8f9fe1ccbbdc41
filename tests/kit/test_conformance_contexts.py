"""What `check_plugin` checks of variants, alignment, devices, and machines that can build and not run."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from collage.devices.providers import Providers
from collage_core.contract import (
    ALIGNMENT_BYTES,
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
    Supported,
    Target,
    Unsupported,
)
from collage_core.errors import KernelError
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_testing import chain, single_matmul
from collage_testing.kit import Conformance, FakeDevice, FakeStream, check_plugin, fake_providers, stream_of

MODELS = {"relu": chain("Relu")}


class Plain:
    """Relu, right in every way; tests override what they break."""

    device = "cpu"

    @hookimpl
    def collage_targets(self, host: Host) -> list[Target]:
        return [Target(toolchain="plain", device=self.device, fingerprint="plain 1")]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("Relu", lambda node: Supported())

    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
        names = [name for name in ("fast", "small") if build.variant in (None, name)]
        return (Artifact(files={}, variant=name) for name in names)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        return Relu()


class Relu:
    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        x, y = inputs[0].array, outputs[0].array
        return lambda: np.maximum(x, 0, out=y)


def test_a_variant_asked_for_alone_is_made_alone() -> None:
    assert check_plugin(Toolchain("plain", Plain()), MODELS).ran == {"relu": 1}


class ForgetsNames(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        for number in range(2):
            yield Artifact(files={}, variant=f"{number} of {build.variant}")


class RefusesAlone(Plain):
    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
        if build.variant is not None:
            return Unsupported("tune it first")
        return Plain().collage_lower(function, build)


class WantsAlignment(Plain):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        class Strict(Relu):
            def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Any) -> BoundCall:
                assert all(each.pointer % ALIGNMENT_BYTES == 0 for each in (*inputs, *outputs)), "misaligned"
                return super().bind(inputs, outputs, workspace)

        return Strict()


class LoadsNothing(Plain):
    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Unsupported:
        return Unsupported("no such device")


@pytest.mark.guards(
    "a plugin forgets, or refuses, the variant that won when it is asked for again by name",
    "the conformance kit names it",
    area="toolchains",
)
@pytest.mark.guards("a kernel wants more alignment than a caller's array has")
@pytest.mark.parametrize(
    ("plugin", "complaint"),
    [
        (ForgetsNames, r"asked for variant '1 of None' alone, it yields \['0 of 1 of None', '1 of 1 of None'\]"),
        (RefusesAlone, "asked for variant 'small' alone, it refuses: tune it first"),
        (WantsAlignment, "misaligned"),
        (LoadsNothing, "refuses what collage_lower has just made: no such device"),
    ],
)
def test_what_breaks_the_contract_is_named(plugin: type[Plain], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_plugin(Toolchain("plain", plugin()), MODELS)


def test_a_machine_that_only_builds_is_not_asked_to_run() -> None:
    assert check_plugin(Toolchain("plain", LoadsNothing()), MODELS, runs=False).ran == {"relu": 1}


def test_lowering_is_told_how_much_is_wanted_and_for_which_machine() -> None:
    seen: list[BuildContext] = []

    class Curious(Plain):
        @hookimpl
        def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
            seen.append(build)
            return Plain().collage_lower(function, build)

    device = Device(name="cuda:0", model="X", compute_capability="9.0", driver="1", memory_bytes=1)
    host = Host(system="Linux", cpu="t", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(device,))
    check_plugin(Toolchain("plain", Curious()), MODELS, host=host, max_variants=3)

    first, again, *_ = seen
    assert (first.max_variants, first.variant, again.variant) == (3, None, "small")
    assert first.host.device("cuda:0") == device
    assert 0 < first.tuning_s < first.deadline_s


# Another device


class OnDevice(Plain):
    """A product on a fake device that keeps nothing of its places but their addresses; tests override what they break.

    The weight comes with the artifact's constants, and the workspace is written, as an algorithm may.
    """

    device = "made-up:0"
    capturable = True

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("MatMul", lambda node: Supported())

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:  # type: ignore[override]  # a hook takes what it wants of the arguments
        constants = dict(function.constants)
        yield Artifact(files={}, constants=constants, workspace_bytes=64, capturable=self.capturable)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        assert run.capture
        [weight] = (run.weight(content) for content in artifact.constants.values())
        return self.kernel(stream_of(run.stream), weight)

    def kernel(self, stream: FakeStream, weight: Buffer) -> Kernel:
        return Product(stream, weight)


class Product:
    def __init__(self, stream: FakeStream, weight: Buffer) -> None:
        self.stream, self.weight = stream, weight

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        assert workspace is not None
        places = [(b.pointer, b.spec.static_shape, b.spec.numpy_dtype) for b in (*inputs, *outputs, workspace)]
        weight, view = self.weight, self.stream.device.view

        def work() -> None:
            x, y, scratch = (view(*place) for place in places)
            scratch[:] = 0xFF
            np.matmul(x, view(weight.pointer, weight.spec.static_shape, weight.spec.numpy_dtype), out=y)

        return lambda: self.enqueue(work)

    def enqueue(self, work: Callable[[], None]) -> None:
        self.stream.enqueue("product", work)


def checked(plugin: type[OnDevice], device: FakeDevice | None = None) -> Conformance:
    device = device or FakeDevice("made-up:0")
    return check_plugin(Toolchain("plain", plugin()), {"matmul": single_matmul(2, 3, 4)}, open_device=device.open)


def test_kernels_of_a_device_are_checked_in_its_memory_on_its_stream_and_in_a_graph() -> None:
    device = FakeDevice("made-up:0")

    assert checked(OnDevice, device).ran == {"matmul": 1}

    # once, bound again, once more, on places that are less aligned, and by a graph
    assert device.kinds("ran", "capture", "launch") == ["ran"] * 4 + ["capture", "launch", "ran"]


def test_an_installed_provider_opens_the_device_unless_the_test_does(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice("made-up:0")
    monkeypatch.setattr(Providers, "discover", lambda: fake_providers(device))

    check_plugin(Toolchain("plain", OnDevice()), {"matmul": single_matmul(2, 3, 4)})

    assert "ran" in device.kinds()


class Refuses(Product):
    """Places that are not aligned, as a kernel of aligned vectors does."""

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        if any(each.pointer % DEVICE_ALIGNMENT_BYTES for each in (*inputs, *outputs)):
            raise KernelError("copy it to an aligned place")
        return super().bind(inputs, outputs, workspace)


def test_a_kernel_of_a_device_may_refuse_places_that_are_less_aligned_than_cores() -> None:
    class Picky(OnDevice):
        def kernel(self, stream: FakeStream, weight: Buffer) -> Kernel:
            return Refuses(stream, weight)

    assert checked(Picky).ran == {"matmul": 1}


class Misreads(Product):
    """Vectors of 256 bytes, from the address rounded down."""

    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        down = [
            Buffer.at(b.spec, device=b.device, pointer=b.pointer // DEVICE_ALIGNMENT_BYTES * DEVICE_ALIGNMENT_BYTES)
            for b in inputs
        ]
        return super().bind(down, outputs, workspace)


class Waits(Product):
    def enqueue(self, work: Callable[[], None]) -> None:
        super().enqueue(work)
        self.stream.synchronise()


class Allocates(Product):
    def enqueue(self, work: Callable[[], None]) -> None:
        self.stream.allocate(16)
        super().enqueue(work)


class AtOnce(Product):
    """On the host, and not when the stream comes to it: before its inputs are there."""

    def enqueue(self, work: Callable[[], None]) -> None:
        self.stream.device.executing = True
        work()
        self.stream.device.executing = False


class Beyond(Product):
    def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Buffer | None) -> BoundCall:
        assert workspace is not None
        spec = dataclasses.replace(workspace.spec, shape=(65,))
        return super().bind(inputs, outputs, Buffer.at(spec, device=workspace.device, pointer=workspace.pointer))


@pytest.mark.parametrize(
    ("kernel", "complaint"),
    [
        (Misreads, "wrong numbers when bound to a caller's own arrays"),
        (Waits, "a kernel's call waits for the stream"),
        (Allocates, "says it is capturable, and it is not: a call allocates while it is captured"),
        (AtOnce, "wrong numbers"),
        (Beyond, "65 bytes at .* are not its own"),
    ],
)
def test_what_a_kernel_of_a_device_must_not_do_is_named(kernel: type[Product], complaint: str) -> None:
    class Wrong(OnDevice):
        def kernel(self, stream: FakeStream, weight: Buffer) -> Kernel:
            return kernel(stream, weight)

    with pytest.raises(AssertionError, match=complaint):
        checked(Wrong)


def test_a_device_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(AssertionError, match=r"plain@made-up:0: device made-up:0: this is other:0"):
        checked(OnDevice, FakeDevice("other:0"))
