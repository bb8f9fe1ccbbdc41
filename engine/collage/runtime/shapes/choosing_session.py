"""A session over sessions: the shapes of the inputs choose which of them runs."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.runtime.bound_run import BoundRun
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Launch
from collage.runtime.places import Given
from collage.runtime.profiling import Profile
from collage.runtime.session import Session
from collage_core.contract import BoundCall
from collage_core.errors import FeedError


class ChoosingSession(Session, abc.ABC):
    """A model ready to run for inputs of several shapes; it is used as any `Session`, and inherits nothing it does.

    Thread-safe as a `Session` is, but for what works on the inputs of `set_inputs`.

    Args:
        current: The session of `run_bound` and the like until `set_inputs` chooses another.
    """

    def __init__(self, current: Session) -> None:
        # a session over sessions, not over an executable of its own
        self._current = current

    @property
    def current(self) -> Session:
        """The session of `run_bound` and the like."""
        return self._current

    @property
    def runs_until_bound(self) -> int:
        """See `Session.runs_until_bound`."""
        return self._current.runs_until_bound

    @abc.abstractmethod
    def session_for(self, feeds: Mapping[str, Any]) -> Session:
        """Return the session that runs inputs of these shapes.

        Raises:
            FeedError: If an input is missing, or there is none for these shapes; it says which there are.
        """

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """Run the session for the shapes of the inputs; see `Session.run`."""
        return self.session_for(input_feed).run(output_names, input_feed, run_options)

    def bind(self, inputs: Mapping[str, Given] | None = None, outputs: Mapping[str, Given] | None = None) -> BoundRun:
        """Fix the memory of a run of the session for the shapes of the inputs, all given; see `Session.bind`."""
        return self.session_for(inputs or {}).bind(inputs, outputs)

    def set_inputs(self, feeds: Mapping[str, Any]) -> None:
        """Choose the session of `run_bound`, `bound_call`, `profile` and `device_work`, and copy its inputs."""
        self._current = self.session_for(feeds)
        self._current.set_inputs(feeds)

    @property
    def bound_call(self) -> BoundCall:
        """See `Session.bound_call`; of the session that `set_inputs` chose."""
        return self._current.bound_call

    @property
    def bound_steps(self) -> tuple[BoundStep, ...]:
        """See `Session.bound_steps`; of the session that `set_inputs` chose."""
        return self._current.bound_steps

    def run_bound(self) -> list[Any]:
        """Run on the inputs of `set_inputs`; see `Session.run_bound`."""
        return self._current.run_bound()

    def profile(self, feeds: Mapping[str, Any] | None = None, *, runs: int = 20, warmup: int = 3) -> Profile:
        """Time every kernel in place, of the session for these inputs or those of `set_inputs`; see `Session`."""
        session = self._current if feeds is None else self.session_for(feeds)
        return session.profile(feeds, runs=runs, warmup=warmup)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """See `Session.launches`; of the session that `set_inputs` chose."""
        return self._current.launches

    def device_work(self) -> DeviceWork:
        """See `Session.device_work`; of the session that `set_inputs` chose."""
        return self._current.device_work()


def shape_given(name: str, feeds: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the shape of an input that is given: an array of any library, a number or nested lists.

    Raises:
        FeedError: If it is not given, or has no shape: a device's name, for one, says nothing of the plan.
    """
    if name not in feeds:
        raise FeedError(name, "no value given for this input, by whose shape a plan is chosen")
    value = feeds[name]
    try:
        if isinstance(value, str):
            raise TypeError("a name has no shape")
        shape = getattr(value, "shape", None)
        return tuple(np.shape(value)) if shape is None else tuple(int(extent) for extent in shape)
    except (TypeError, ValueError) as error:
        raise FeedError(name, f"give an array, by whose shape a plan is chosen: {error}") from error
