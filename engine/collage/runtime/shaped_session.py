"""Run a package of several plans: one session for each set of input shapes, chosen by the inputs given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.runtime.bound_run import BoundRun
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Launch
from collage.runtime.kernels.reports import SessionReport
from collage.runtime.package.plan import described
from collage.runtime.places import Given
from collage.runtime.profiling import Profile
from collage.runtime.session import NodeArg, Session
from collage_core.contract import BoundCall
from collage_core.errors import FeedError


class ShapedSession(Session):
    """A model ready to run for inputs of several shapes; it is used as any `Session`, and inherits no method of it.

    Thread-safe as a `Session` is, but for what works on the inputs of `set_inputs`.

    Args:
        sessions: A session for each set of shapes. It takes ownership.
        input_shapes: The shapes that each is for, by the input's name; all name the same inputs.

    Attributes:
        sessions: As given.
        input_shapes: As given.
    """

    def __init__(self, sessions: Sequence[Session], input_shapes: Sequence[Mapping[str, tuple[int, ...]]]) -> None:
        # a session over sessions, not over an executable of its own
        self.sessions = tuple(sessions)
        self.input_shapes = tuple(input_shapes)
        # inputs whose shapes are the same in all plans are left to the session, which says what it expects
        self._names = [
            name for name in self.input_shapes[0] if len({shapes.get(name) for shapes in self.input_shapes}) > 1
        ]
        self._by_shapes = {
            tuple(shapes[name] for name in self._names): session
            for session, shapes in zip(self.sessions, self.input_shapes, strict=True)
        }
        self._current = self.sessions[0]

    def session_for(self, feeds: Mapping[str, Any]) -> Session:
        """Return the session that runs inputs of these shapes.

        Raises:
            FeedError: If an input is missing, or there is no plan for these shapes; it says which there are.
        """
        if not isinstance(feeds, Mapping):
            return self.sessions[0]  # which says what is wrong
        shapes = tuple(_shape_of(name, feeds) for name in self._names)
        found = self._by_shapes.get(shapes)
        if found is None:
            given = described(dict(zip(self._names, shapes, strict=True)))
            known = "; ".join(described({name: each[name] for name in self._names}) for each in self.input_shapes)
            raise FeedError(
                self._names[0],
                f"the package has no plan for {given}, only for {known}; optimize the model again with these shapes "
                "among --input-shapes",
            )
        return found

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

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the plan for the shapes of the inputs; see `Session.run`."""
        return self.session_for(feeds).run(output_names, feeds)

    def bind(self, inputs: Mapping[str, Given] | None = None, outputs: Mapping[str, Given] | None = None) -> BoundRun:
        """Fix the memory of a run of the plan for the shapes of the inputs, all of which are given; see `Session`."""
        return self.session_for(inputs or {}).bind(inputs, outputs)

    def set_inputs(self, feeds: Mapping[str, Any]) -> None:
        """Choose the plan of `run_bound`, `bound_call`, `profile` and `device_work`, and copy its inputs."""
        self._current = self.session_for(feeds)
        self._current.set_inputs(feeds)

    @property
    def bound_call(self) -> BoundCall:
        """See `Session.bound_call`; of the plan that `set_inputs` chose."""
        return self._current.bound_call

    @property
    def bound_steps(self) -> tuple[BoundStep, ...]:
        """See `Session.bound_steps`; of the plan that `set_inputs` chose."""
        return self._current.bound_steps

    def run_bound(self) -> list[Any]:
        """Run on the inputs of `set_inputs`; see `Session.run_bound`."""
        return self._current.run_bound()

    def profile(self, feeds: Mapping[str, Any] | None = None, *, runs: int = 20, warmup: int = 3) -> Profile:
        """Time every kernel in place, of the plan for these inputs or those of `set_inputs`; see `Session.profile`."""
        session = self._current if feeds is None else self.session_for(feeds)
        return session.profile(feeds, runs=runs, warmup=warmup)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """See `Session.launches`; of the plan that `set_inputs` chose."""
        return self._current.launches

    def device_work(self) -> DeviceWork:
        """See `Session.device_work`; of the plan that `set_inputs` chose."""
        return self._current.device_work()

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
        return SessionReport(kernels=tuple(kernels), verified=self.verified)

    def clone(self) -> ShapedSession:
        """Return a session with memory of its own, to run in another thread; see `Session.clone`."""
        return ShapedSession([session.clone() for session in self.sessions], self.input_shapes)


def _shape(value: Any) -> tuple[int, ...]:
    """Return the shape of a value of an input: an array of any library, a number or nested lists."""
    shape = getattr(value, "shape", None)
    return tuple(np.shape(value)) if shape is None else tuple(int(extent) for extent in shape)


def _shape_of(name: str, feeds: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of an input that is given.

    Raises:
        FeedError: If it is not given, or has no shape: a device's name, for one, says nothing of the plan.
    """
    if name not in feeds:
        raise FeedError(name, "no value given for this input, by whose shape a plan is chosen")
    value = feeds[name]
    try:
        if isinstance(value, str):
            raise TypeError("a name has no shape")
        return _shape(value)
    except (TypeError, ValueError) as error:
        raise FeedError(name, f"give an array, by whose shape a plan is chosen: {error}") from error


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
