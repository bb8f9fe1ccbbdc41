"""The hooks of the toolchain `triton`. Importing this imports no Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
    Device,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Supported,
    Target,
    Unsupported,
)
from collage_core.fusion import FusionRule
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from collage_cuda import TENSOR_CORES, gpu_targets
from collage_triton.compile import compile_kernel
from collage_triton.driver import Driver
from collage_triton.groups import rule_of
from collage_triton.kernel import load
from collage_triton.lower import Compile, lower
from collage_triton.machine import Installed, compiler_problem, installed, usable_devices
from collage_triton.patterns import register
from collage_triton.products import PRODUCTS


def targets(version: str, devices: Iterable[Device]) -> list[Target]:
    """Return the targets of some devices, and of the lower precisions of products.

    Args:
        version: Version of Triton.
        devices: The supported devices.
    """
    return gpu_targets(
        devices,
        toolchain="triton",
        fingerprint=f"triton {version}",
        joins=Joins.NATIVE,
        precisions=TENSOR_CORES,
        rounds=dict.fromkeys(TENSOR_CORES, PRODUCTS),
    )


class TritonPlugin:
    """Hooks of the toolchain `triton`; keeps the process's one driver.

    Args:
        version_of: Returns the version of an installed package.
        open_driver: Loads the CUDA driver; called at first use.
        compiling: Compiles a kernel.
    """

    def __init__(
        self,
        version_of: Installed = installed,
        open_driver: Callable[[], Driver] = Driver,
        compiling: Compile = compile_kernel,
    ) -> None:
        self._version_of = version_of
        self._open_driver = open_driver
        self._compile = compiling
        self._driver: Driver | None = None

    def driver(self) -> Driver:
        """Return the CUDA driver, initialised on first use.

        Raises:
            OSError: If there is none.
        """
        if self._driver is None:
            self._driver = self._open_driver()
        return self._driver

    @hookimpl
    def collage_check_host(self, host: Host) -> Supported | Unsupported:
        """Check that there is a GPU that Triton supports, and a driver that loads code compiled for it."""
        found = usable_devices(host)
        return found if isinstance(found, Unsupported) else Supported()

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """Return `triton`, and its variants with `precision=tf32`, `fp16` and `bf16`, on each supported device."""
        devices = usable_devices(host)
        if isinstance(devices, Unsupported):
            return devices
        if (problem := compiler_problem(self._version_of)) is not None:
            return problem
        return targets(str(self._version_of("triton")), devices)

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """Register the operators that have a loop nest."""
        register(table)

    @hookimpl
    def collage_fusion_spec(self, target: Target) -> FusionRule:
        """Return native fusion and explicit blocks, without the groups that have no loop nest."""
        return rule_of(target)

    @hookimpl
    def collage_lower(
        self, target: Target, function: KernelFunction, build: BuildContext
    ) -> Iterator[Artifact] | Unsupported:
        """Build cubins, one pair per arrangement of loops."""
        return lower(target, function, build, str(self._version_of("triton")), self._compile)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """Load the cubin with the driver."""
        return load(artifact, run, self.driver)


plugin = TritonPlugin()
