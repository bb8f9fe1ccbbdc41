"""A draft of a toolchain on TVM, for groups of element-wise operators. Importing this imports no TVM."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from collage_core.contract import (
    Artifact,
    BuildContext,
    Host,
    Joins,
    Kernel,
    KernelFunction,
    RunContext,
    Target,
    Unsupported,
)
from collage_core.hookspecs import hookimpl
from collage_core.patterns import PatternTable
from tests.drafts.tvm_groups.compiler import compile_group
from tests.drafts.tvm_groups.kernel import load
from tests.drafts.tvm_groups.lower import lower
from tests.drafts.tvm_groups.operators import EXPRESSIONS, takes

LINKERS = ("cc", "gcc", "g++", "clang")


class TvmPlugin:
    """Hooks of the toolchain `tvm`."""

    @hookimpl
    def collage_targets(self, host: Host) -> Sequence[Target] | Unsupported:
        """One target on the CPU, where TVM can compile and something can link."""
        try:
            import tvm
        except Exception as error:
            return Unsupported(f"tvm cannot be imported ({error}); pip install apache-tvm")
        if tvm.get_global_func("target.build.llvm", allow_missing=True) is None:
            return Unsupported(f"tvm {tvm.__version__} was built without LLVM")
        if not any(shutil.which(linker) for linker in LINKERS):
            return Unsupported("tvm links with a C compiler, and none is installed; apt install gcc")
        return [Target(toolchain="tvm", fingerprint=f"tvm {tvm.__version__}", joins=Joins.NATIVE)]

    @hookimpl
    def collage_register_predicates(self, table: PatternTable, target: Target) -> None:
        """The operators there is an expression for; `Joins.NATIVE` makes groups of them."""
        for operator in EXPRESSIONS:
            table.predicate(operator, takes)

    @hookimpl
    def collage_lower(self, function: KernelFunction, build: BuildContext) -> Iterator[Artifact] | Unsupported:
        """Shared libraries, one per arrangement of loops."""
        import tvm

        return lower(function, build, str(tvm.__version__), compile_group)

    @hookimpl
    def collage_load(self, artifact: Artifact, run: RunContext) -> Kernel | Unsupported:
        """The library, loaded."""
        return load(artifact, run)


plugin = TvmPlugin()
