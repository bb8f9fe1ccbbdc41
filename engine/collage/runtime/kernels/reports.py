"""Report what a session runs, and which kernels are not the packaged ones."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class KernelReport:
    """What runs at one call site.

    Attributes:
        site: Its name.
        packaged: Name of the target in the package.
        target: Name of the target that runs it.
        nodes: Names of the nodes it computes.
        reason: Why it is a substitute; empty if it is the packaged kernel.
        input_shapes: Shapes of the plan's inputs, as `--input-shapes` takes them; empty if there is one plan only.
    """

    site: str
    packaged: str
    target: str
    nodes: tuple[str, ...]
    reason: str = ""
    input_shapes: str = ""

    @property
    def name(self) -> str:
        """The call site, with the shapes that its plan is for."""
        return f"{self.site} for {self.input_shapes}" if self.input_shapes else self.site


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanMemory:
    """What one of several plans takes in a process that runs them all.

    Attributes:
        input_shapes: Shapes of the plan's inputs, as `--input-shapes` takes them.
        loaded_bytes: By how much this process grew when the plan was loaded after those before it, files of the package
            left out: kernels, and weights that libraries repack for them.
        arena_bytes: What internal values and the kernels' scratch take of the CPU's memory. Plans share it: the largest
            counts.
    """

    input_shapes: str
    loaded_bytes: int
    arena_bytes: int


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """What a session runs, and how that differs from its package.

    Attributes:
        kernels: The kernels, in the order in which they run.
        verified: Whether this session's outputs were compared with the reference's. Packaged kernels were when the
            package was made; substitutes only then.
        outside: Sizes that it ran, such as `sequence=600`, outside the ranges that its plans are for; the first few.
        memory: What each plan takes, in the order in which they were loaded; empty if there is one plan only.
    """

    kernels: tuple[KernelReport, ...]
    verified: bool
    outside: tuple[str, ...] = ()
    memory: tuple[PlanMemory, ...] = ()

    @property
    def substitutes(self) -> tuple[KernelReport, ...]:
        """The kernels that are not the packaged ones."""
        return tuple(kernel for kernel in self.kernels if kernel.reason)

    def __str__(self) -> str:
        """Describe the session, one line for each substitute."""
        count = len(self.kernels)
        lines = [f"{count} {'kernel' if count == 1 else 'kernels'}, {len(self.substitutes)} of them not as packaged"]
        state = "verified" if self.verified else "not verified"
        for kernel in self.substitutes:
            how = "lowered again" if kernel.target == kernel.packaged else f"on {kernel.target} in its place"
            lines.append(f"{kernel.name} of {kernel.packaged}: {how}, {state} ({kernel.reason})")
        if self.outside:
            lines.append(f"ran for sizes that no plan is for: {', '.join(self.outside)}")
        if self.memory:
            loaded = ", ".join(f"{each.loaded_bytes / 2**20:.1f} MiB for {each.input_shapes}" for each in self.memory)
            lines.append(f"plans took, when loaded one after the other, {loaded}")
            if arena_bytes := max(each.arena_bytes for each in self.memory):
                lines.append(f"they share an arena of {arena_bytes / 2**20:.1f} MiB")
        return "\n".join(lines)
