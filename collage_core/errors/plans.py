"""No plan was found, or it cannot be what it should."""

from __future__ import annotations

from collage_core.errors.base import CollageError, UsageError


class SearchError(CollageError):
    """A search problem is ill-formed, or too large for the limits it was given."""


class SolverMissingError(UsageError):
    """Something was asked for that an optional dependency does.

    Attributes:
        what: What was asked for.
        module: The module it takes.
        extra: What to install.
    """

    def __init__(self, what: str, module: str, extra: str) -> None:
        self.what = what
        self.module = module
        self.extra = extra
        super().__init__(f"{what} needs {module}, which is not installed: pip install '{extra}'")


class NoCoverError(SearchError):
    """No plan covers every node.

    Attributes:
        nodes: Indices of the nodes no usable candidate covers; or, if each is covered by some, of the nodes
            where every partial plan got stuck.
        stuck: Whether it is the latter.
        refusals: One line per reason, where the caller knows them.
    """

    def __init__(
        self,
        nodes: tuple[int, ...],
        *,
        stuck: bool = False,
        refusals: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
    ) -> None:
        self.nodes = nodes
        self.stuck = stuck
        self.refusals = refusals
        shown = [repr(name) for name in names] or [str(index) for index in nodes]
        what = ", ".join(shown[:10]) + (f" and {len(nodes) - 10} more" if len(nodes) > 10 else "")
        problem = (
            f"no set of candidates fits together at node(s) {what}" if stuck else f"no toolchain runs node(s) {what}"
        )
        why = f": {'; '.join(refusals).rstrip('.')}" if refusals else ""
        super().__init__(
            f"{problem}{why}. Install a plugin that covers it, exclude fewer toolchains, or enable 'reference'."
        )

    def explained(self, refusals: tuple[str, ...], names: tuple[str, ...] = ()) -> NoCoverError:
        """The same error with the reasons the caller collected, and names in place of indices where it knows them."""
        return NoCoverError(self.nodes, stuck=self.stuck, refusals=refusals, names=names)


class PinError(UsageError):
    """A pin that nobody it names can keep.

    Attributes:
        pin: As written.
        node: Name of a node it holds.
        refusals: What the pinned toolchain said of it, one line per reason.
    """

    def __init__(self, pin: str, node: str, op_type: str, refusals: tuple[str, ...]) -> None:
        self.pin = pin
        self.node = node
        self.refusals = refusals
        why = "; ".join(refusals) or "it proposes no kernel for it"
        super().__init__(
            f"--pin {pin!r} cannot be kept: no kernel of that toolchain runs node {node!r} ({op_type}): {why}. "
            "Pin less, or pin it to another toolchain."
        )


class PlanFileError(UsageError):
    """A plan file cannot be read, or is none of this model.

    Attributes:
        source: The file.
        reason: What is wrong with it.
    """

    def __init__(self, source: str, reason: str) -> None:
        self.source = source
        self.reason = reason
        super().__init__(f"cannot use {source!r} as a plan: {reason}")


class PartitioningError(CollageError):
    """Kernels chosen for a graph are no partitioning of it.

    Attributes:
        reason: What is wrong with them.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(
            f"these kernels do not partition the graph: {reason}. "
            "Give disjoint kernels that cover every node and can run one after the other."
        )


class PlanBuildError(CollageError):
    """A kernel that was measured cannot be built for one of its call sites, or is wrong there.

    Attributes:
        target: Name of its target.
        nodes: Names of its nodes.
        reason: What happened.
    """

    def __init__(self, target: str, nodes: tuple[str, ...], reason: str) -> None:
        self.target = target
        self.nodes = nodes
        self.reason = reason
        shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
        super().__init__(f"{target} cannot build {shown}: {reason}")


class VerificationError(CollageError):
    """A finished plan does not give the reference's numbers, or does not run where it will be used."""
