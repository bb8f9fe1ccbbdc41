"""What `check_plugin` checks of variants, alignment, devices, and machines that can build and not run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from collage_core.contract import (
    ALIGNMENT_BYTES,
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
    TensorSpec,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_core.registry import Toolchain
from collage_core.testing import chain, check_plugin, single_matmul

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
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
        for name in ("fast", "small"):
            if build.variant in (None, name):
                yield Artifact(files={}, variant=name)

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
        def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact]:
            seen.append(build)
            return Plain().collage_lower(function, build)

    device = Device(name="cuda:0", model="X", compute_capability="9.0", driver="1", memory_bytes=1)
    host = Host(system="Linux", cpu="t", physical_cores=1, cpu_flags=frozenset(), memory_bytes=1, devices=(device,))
    check_plugin(Toolchain("plain", Curious()), MODELS, host=host, max_variants=3)

    first, again = seen
    assert (first.max_variants, first.variant, again.variant) == (3, None, "small")
    assert first.host.device("cuda:0") == device
    assert 0 < first.tuning_s < first.deadline_s


# Another device


class Elsewhere:
    """Memory of a made-up device: an address there is a key, and work is done when somebody waits."""

    stream = 5

    def __init__(self) -> None:
        self.memory: dict[int, Any] = {}
        self.queue: list[Any] = []

    def buffer(self, spec: TensorSpec) -> Buffer:
        pointer = 256 * (len(self.memory) + 1)
        self.memory[pointer] = np.empty(spec.static_shape, spec.numpy_dtype)
        return Buffer.at(spec, device="made-up:0", pointer=pointer)

    def write(self, buffer: Buffer, array: Any) -> None:
        self.wait()
        self.memory[buffer.pointer][...] = array

    def read(self, buffer: Buffer) -> Any:
        self.wait()
        return self.memory[buffer.pointer].copy()

    def wait(self) -> None:
        while self.queue:
            self.queue.pop(0)()


class OnDevice(Plain):
    device = "made-up:0"

    def __init__(self, memory: Elsewhere) -> None:
        self.there = memory

    @hookimpl
    def collage_register_predicates(self, table: PatternTable) -> None:
        table.predicate("MatMul", lambda node: Supported())

    @hookimpl
    def collage_lower(self, function: KernelFunction) -> Iterator[Artifact]:
        yield Artifact(files={}, constants=dict(function.constants), workspace_bytes=64)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel:
        [weight] = (run.weight(content) for content in artifact.constants.values())
        there: Mapping[int, Any] = self.there.memory
        queue = self.there.queue
        assert run.stream == Elsewhere.stream

        class Product:
            def bind(self, inputs: Sequence[Buffer], outputs: Sequence[Buffer], workspace: Any) -> BoundCall:
                assert there[workspace.pointer].nbytes == 64
                x, y, w = inputs[0].pointer, outputs[0].pointer, weight.pointer
                return lambda: queue.append(lambda: np.matmul(there[x], there[w], out=there[y]))

        return Product()


def test_kernels_of_a_device_are_checked_in_its_memory_and_on_its_stream() -> None:
    memory = Elsewhere()

    conformance = check_plugin(Toolchain("plain", OnDevice(memory)), {"matmul": single_matmul(2, 3, 4)}, memory=memory)

    assert conformance.ran == {"matmul": 1}
