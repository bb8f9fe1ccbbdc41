"""A toolchain failed: its plugin, or what it built."""

from __future__ import annotations

from collage_core.errors.base import CollageError


class PluginError(CollageError):
    """A plugin broke the contract: wrong type returned, exception raised, or entry point that cannot load.

    Attributes:
        toolchain: Name of the entry point.
        hook: Name of the hook that failed, or `"import"`.
        reason: What happened.
    """

    def __init__(self, toolchain: str, hook: str, reason: str) -> None:
        self.toolchain = toolchain
        self.hook = hook
        self.reason = reason
        super().__init__(f"toolchain {toolchain!r} failed in {hook}: {reason}")


class LoweringError(CollageError):
    """A toolchain accepted a kernel function and then failed to build it."""


class KernelError(CollageError):
    """A loaded kernel failed to bind or to run."""


class KernelLoadError(KernelError):
    """The kernel of a call site cannot be made callable here.

    Attributes:
        site: Call site in the partitioned model.
        target: Name of the target it was built for.
        nodes: Names of the nodes it computes.
        reason: What is missing, or what the toolchain said.
    """

    def __init__(self, site: str, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.site = site
        self.target = target
        self.nodes = nodes
        self.reason = reason
        super().__init__(
            f"kernel {site!r} of {target} ({_some(nodes)}) cannot be loaded here: {reason.rstrip('.')}. "
            "Install what it needs, or optimize the model again on this machine."
        )


class LibraryClashError(KernelError):
    """Kernels of a package have loaded two of a library of which a process has room for one.

    Attributes:
        library: In people's words: `"cuDNN"`.
        between: The toolchains that loaded them; `""` for what was there before.
        files: Their files, in the same order.
    """

    def __init__(self, library: str, between: tuple[str, str], files: tuple[str, str]) -> None:
        self.library = library
        self.between = between
        self.files = files
        one, other = (f"{who} has loaded {file}" for who, file in zip(between, files, strict=True))
        if between[0]:
            remedy = f"Install both for one CUDA, with one {library}, or optimize the model again on this machine"
        else:
            one = f"this process had loaded {files[0]} before"
            remedy = f"Load the package in a process of its own, or install one {library} for all of them"
        super().__init__(
            f"two of {library}: {one}, {other}, and a process has room for one: what kernels compute, and whether they "
            f"run, is not what was measured. {remedy}; `collage doctor` says which toolchains load which."
        )


class LoweredAgainWarning(UserWarning):
    """Kernels of a package did not fit this machine and were built anew; they work, unmeasured."""


class KernelRunError(KernelError):
    """A kernel failed while an executable ran.

    Attributes:
        site: Call site in the partitioned model, or the name of a host node.
        target: Name of the target that runs it; `"host"` for Collage itself.
        nodes: Names of the nodes it computes.
        reason: What was raised.
    """

    def __init__(self, site: str, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.site = site
        self.target = target
        self.nodes = nodes
        self.reason = reason
        if target == "host":  # nobody's kernel: a copy between devices, a wait for one, a view
            super().__init__(f"step {site!r} failed while running: {reason}.")
            return
        super().__init__(
            f"kernel {site!r} of {target} ({_some(nodes)}) failed while running: {reason}. "
            f"To do without this toolchain, optimize again with `--exclude {target.partition('(')[0]}`."
        )


def _some(names: tuple[str, ...], most: int = 8) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
