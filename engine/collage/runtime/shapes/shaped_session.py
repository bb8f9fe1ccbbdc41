"""Run a package of several plans: one session for each set of input shapes, chosen by the inputs given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from collage.runtime.calling.shared_memory import SharedMemory
from collage.runtime.kernels.reports import PlanMemory, SessionReport
from collage.runtime.package.plan import described
from collage.runtime.session import NodeArg, Session
from collage.runtime.shapes.choosing_session import ChoosingSession, shape_given
from collage.runtime.shapes.ranged_session import RangedSession
from collage_core.errors import FeedError
from collage_core.ir.values.size_range import Shape


class ShapedSession(ChoosingSession):
    """A session of a package of several plans.

    A plan for exactly the shapes of the inputs goes before one for a range that holds them.

    Args:
        sessions: A session for each set of shapes, which may share memory. It takes ownership.
        input_shapes: The shapes that each is for, by the input's name; all name the same inputs.
        loaded_bytes: By how much the process grew when each was loaded, by its place in `sessions`, in the order in
            which they were.

    Attributes:
        sessions: As given.
        input_shapes: As given.
    """

    def __init__(
        self,
        sessions: Sequence[Session],
        input_shapes: Sequence[Mapping[str, Shape]],
        loaded_bytes: Mapping[int, int] | None = None,
    ) -> None:
        super().__init__(sessions[0])
        self._loaded_bytes = loaded_bytes or {}
        self.sessions = tuple(sessions)
        self.input_shapes = tuple(input_shapes)
        # inputs whose shapes are the same in all plans are left to the session, which says what it expects
        self._names = [
            name for name in self.input_shapes[0] if len({shapes.get(name) for shapes in self.input_shapes}) > 1
        ]
        self._exact: dict[tuple[Shape, ...], Session] = {}
        self._ranged: list[RangedSession] = []
        for session, shapes in zip(self.sessions, self.input_shapes, strict=True):
            if isinstance(session, RangedSession):
                self._ranged.append(session)
            else:
                self._exact[tuple(shapes[name] for name in self._names)] = session

    def session_for(self, feeds: Mapping[str, Any]) -> Session:
        """Return the session that runs inputs of these shapes.

        Raises:
            FeedError: If an input is missing, or there is no plan for these shapes; it says which there are.
        """
        if not isinstance(feeds, Mapping):
            return self.sessions[0]  # which says what is wrong
        shapes = tuple(shape_given(name, feeds) for name in self._names)
        found = self._exact.get(shapes)
        if found is not None:
            return found
        for ranged in self._ranged:
            if ranged.holds(feeds):
                return ranged
        if self._ranged:
            return self._ranged[-1]  # it says that these sizes are outside
        given = described(dict(zip(self._names, shapes, strict=True)))
        known = "; ".join(described({name: each[name] for name in self._names}) for each in self.input_shapes)
        raise FeedError(
            self._names[0],
            f"the package has no plan for {given}, only for {known}; optimize the model again with these shapes "
            "among --input-shapes",
        )

    def described(self, session: Session) -> str:
        """Return the shapes that one of the sessions is for, as `--input-shapes` takes them."""
        return described(self.input_shapes[self.sessions.index(session)])

    def get_inputs(self) -> list[NodeArg]:
        """Return the model's inputs in order; extents that differ between the plans are None."""
        return _joined([session.get_inputs() for session in self.sessions])

    def get_outputs(self) -> list[NodeArg]:
        """Return the model's outputs in order; extents that differ between the plans are None."""
        return _joined([session.get_outputs() for session in self.sessions])

    @property
    def output_bytes(self) -> int:
        """See `Session.output_bytes`; the sum over all plans."""
        return sum(session.output_bytes for session in self.sessions)

    @property
    def verified(self) -> bool:
        """Whether the outputs of every plan were compared with the reference's since it was loaded."""
        return all(session.verified for session in self.sessions)

    @verified.setter
    def verified(self, value: bool) -> None:
        for session in self.sessions:
            session.verified = value

    def report(self) -> SessionReport:
        """Return what runs where, in all plans, and which kernels are not those of the package."""
        kernels = [
            dataclasses.replace(kernel, input_shapes=described(shapes))
            for session, shapes in zip(self.sessions, self.input_shapes, strict=True)
            for kernel in session.report().kernels
        ]
        outside = tuple(dict.fromkeys(name for session in self._ranged for name in session.report().outside))
        memory = [
            PlanMemory(
                input_shapes=described(self.input_shapes[place]),
                loaded_bytes=nbytes,
                arena_bytes=self.sessions[place].arena_bytes,
            )
            for place, nbytes in self._loaded_bytes.items()
        ]
        return SessionReport(kernels=tuple(kernels), verified=self.verified, outside=outside, memory=tuple(memory))

    @property
    def arena_bytes(self) -> int:
        """See `Session.arena_bytes`; of the plan that takes most, for they share it."""
        return max(session.arena_bytes for session in self.sessions)

    def clone(self, shared: SharedMemory | None = None) -> ShapedSession:
        """Return a session with memory of its own, to run in another thread; see `Session.clone`."""
        shared = SharedMemory() if shared is None else shared
        largest_first = sorted(self.sessions, key=lambda session: -session.arena_bytes)
        twins = {session: session.clone(shared) for session in largest_first}
        return ShapedSession([twins[session] for session in self.sessions], self.input_shapes, self._loaded_bytes)


def _joined(described: Sequence[Sequence[NodeArg]]) -> list[NodeArg]:
    """Return inputs or outputs with the extents on which all plans agree."""
    found = []
    for each in zip(*described, strict=True):
        shape: list[int | str | None] = []
        if len({len(argument.shape) for argument in each}) == 1:  # the rank may differ, too: nothing is said then
            extents = zip(*(argument.shape for argument in each), strict=True)
            shape = [extent[0] if len(set(extent)) == 1 else None for extent in extents]
        found.append(NodeArg(each[0].name, shape, each[0].type))
    return found
