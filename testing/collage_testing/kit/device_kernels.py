"""Run single kernels of a toolchain on a device, in tests that work on a fake and on a real device alike.

`check_plugin` tries everything a plugin claims; this module is for what a test examines itself: every
variant, another type, a graph launched a thousand times. It goes from a kernel function to NumPy arrays,
through the same hooks as core:

    def fake() -> DeviceMachine:
        return DeviceMachine.fake(Toolchain("sampler", plugin_that_emulates()), HOST, FakeDevice("cuda:0"))

    def real() -> DeviceMachine:
        machine = DeviceMachine.real(Toolchain("sampler", plugin))
        if isinstance(machine, Unsupported):
            pytest.skip(machine.reason)
        return machine

    @pytest.mark.parametrize("on", [fake, pytest.param(real, marks=pytest.mark.gpu("cupy"))])
    def test_every_variant_is_right(on: Callable[[], DeviceMachine], tmp_path: Path) -> None:
        machine = on()
        target = machine.target(precision="fp16")
        for artifact in machine.variants(function, target, tmp_path):
            kernel = machine.bound(function, target, artifact, feeds)
            [y] = kernel.run()
            assert relative_error(y, right) < 1e-2
            kernel.check_replays(1000 if machine.is_real else 10)

`machine.check` does for single candidates, optionally against expected values of your own, what `check_plugin`
does for all. On a fake device a call that waits fails its test. To count the host's waits in a longer run, on
either device:

    with machine.calls() as calls:
        run()
    assert len(waits(calls)) == 1
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import numpy as np

from collage.devices.providers import Providers
from collage.devices.this_host import this_host
from collage_core.contract import Artifact, DeviceStream, Host, KernelFunction, Target, Unsupported
from collage_core.registry import Toolchain
from collage_testing.kit import fake_providers
from collage_testing.kit.bound_kernel import BoundKernel
from collage_testing.kit.contexts import MemoryBlobs, build_context, run_context
from collage_testing.kit.device_calls import asked_of
from collage_testing.kit.fake_device import FakeDevice

_MOST_VARIANTS = 16
_DEADLINE_S = 600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceMachine:
    """A toolchain, and a device on which its kernels are tried.

    Attributes:
        toolchain: Builds and loads them.
        host: The machine they are built for.
        stream: Of the device.
        providers: Who provides devices of that machine, as `Executable.build` wants it.
        is_real: Whether the device is there.
        blobs: What the toolchain keeps from one function to the next, such as compiled kernels.
    """

    toolchain: Toolchain
    host: Host
    stream: DeviceStream
    providers: Providers
    is_real: bool
    blobs: MemoryBlobs = dataclasses.field(default_factory=MemoryBlobs)

    @classmethod
    def fake(cls, toolchain: Toolchain, host: Host, device: FakeDevice) -> Self:
        """Make a machine with a simulated device.

        Args:
            toolchain: Its plugin has to launch on streams of a `FakeDevice`; `stream_of` finds them by their handles.
            host: The machine description passed to the plugin.
            device: Replaces the real device of its name.
        """
        return cls(
            toolchain=toolchain,
            host=host,
            stream=device.open(device.name),
            providers=fake_providers(device),
            is_real=False,
        )

    @classmethod
    def real(
        cls, toolchain: Toolchain, device: str = "cuda:0", providers: Providers | None = None
    ) -> Self | Unsupported:
        """Return this machine and one of its devices, or why the toolchain runs nothing there.

        Args:
            toolchain: The toolchain.
            device: The device.
            providers: Who provides it; those installed if None.

        Raises:
            DeviceError: If the toolchain has a target there, and the device cannot be used: that is no reason to skip.
            PluginError: If the plugin breaks the contract.
        """
        providers = providers or Providers.discover()
        host = this_host(providers)
        offered = toolchain.targets(host)
        if isinstance(offered, Unsupported):
            return offered
        if all(target.device != device for target in offered):
            return Unsupported(f"{toolchain.name} has no target on {device}, only {', '.join(t.name for t in offered)}")
        stream = providers.open(device)
        return cls(toolchain=toolchain, host=host, stream=stream, providers=providers, is_real=True)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The toolchain's targets on the device, in its order.

        Raises:
            LookupError: If it has none; the message gives the reason.
        """
        offered = self.toolchain.targets(self.host)
        if isinstance(offered, Unsupported):
            raise LookupError(offered.reason)
        return tuple(target for target in offered if target.device == self.stream.name)

    def target(self, **options: str) -> Target:
        """Return the target on the device with exactly these options, such as `precision="tf32"`.

        Raises:
            LookupError: If there is none; lists the available targets.
        """
        wanted = tuple(sorted(options.items()))
        for target in self.targets:
            if target.options == wanted:
                return target
        raise LookupError(f"no target has the options {options}: {', '.join(target.name for target in self.targets)}")

    def variants(self, function: KernelFunction, target: Target, scratch: Path, **fields: Any) -> list[Artifact]:
        """Lower a function with the highest effort, to at most 16 variants.

        Args:
            function: The function to compute.
            target: One of the toolchain's.
            scratch: A directory for the toolchain.
            **fields: Overrides of `BuildContext` fields; see `build_context`.

        Raises:
            AssertionError: If the toolchain refuses; gives its reason.
            LoweringError: If it fails.
        """
        usual: dict[str, Any] = {"host": self.host, "blobs": self.blobs, "effort": 2, "deadline_s": _DEADLINE_S}
        usual |= {"max_variants": _MOST_VARIANTS, "launch": target.launch}
        build = build_context(scratch, **(usual | fields))
        answer = self.toolchain.lower(target, function, build)
        if isinstance(answer, Unsupported):
            raise AssertionError(f"{target.name} refuses {function.name}: {answer.reason}")
        return list(itertools.islice(answer, build.max_variants))

    def bound(
        self,
        function: KernelFunction,
        target: Target,
        artifact: Artifact,
        feeds: Mapping[str, np.ndarray[Any, Any]],
        *,
        aligned: bool = True,
    ) -> BoundKernel:
        """Load an artifact and its weights on the device, and bind it to buffers that hold its inputs.

        Args:
            function: The function it was made from.
            target: The target it was made for.
            artifact: The artifact.
            feeds: Arrays by name of the function's inputs; other names are ignored.
            aligned: See `BoundKernel`.

        Raises:
            AssertionError: If the toolchain refuses; gives its reason.
            KernelError: If the kernel refuses these buffers.
            DeviceError: If the device runs out of memory, or fails.
        """
        self.stream.activate()
        run = run_context(artifact, function, target, self.stream, host=self.host)
        kernel = self.toolchain.load(target, artifact, run)
        if isinstance(kernel, Unsupported):
            raise AssertionError(f"{target.name} does not load variant {artifact.variant!r}: {kernel.reason}")
        given = [feeds[spec.name] for spec in function.inputs]
        return BoundKernel(kernel, artifact, function, given, self.stream, aligned=aligned, keeps=run)

    def calls(self) -> AbstractContextManager[list[str]]:
        """Record the device calls in a block, available on exit; `device_calls` tells which calls wait.

        Raises:
            DeviceUnavailableError: On entry with a real device, if CUPTI is not found.
        """
        return asked_of(self.stream)
