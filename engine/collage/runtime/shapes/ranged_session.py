"""Run one plan for a range of sizes: memory is planned and kernels are bound anew for each, the kernels are shared.

All shapes follow from the sizes of the inputs, so for each set of sizes all of a run is known beforehand, and it is as
fast as that of a static plan. What the last sizes took is kept; their runs share one arena.

Binding takes a millisecond where inputs and outputs are many, such as caches of keys and values, which grow with each
token. So a plan of one kernel gets what it reads and writes by reference until the same sizes have come a few times;
with many inputs and outputs always: they are elsewhere in each run, and copies to and from where they are bound cost
more than references.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from collage.errors import OutsideRangeWarning
from collage.runtime.calling.shared_memory import SharedBlocks, SharedMemory
from collage.runtime.executable import Executable
from collage.runtime.kernels.reports import SessionReport
from collage.runtime.session import NodeArg, Session, described_value
from collage.runtime.shapes.choosing_session import ChoosingSession, shape_given
from collage_core.errors import FeedError, KernelError, MemoryNeededError
from collage_core.ir.values.size_range import SizeRange
from collage_core.ir.values.symbolic_sizes import shape_at, size_symbols

_KEPT_SIZES: Final = 256
"""Most sets of sizes whose runs stay bound. They share memory, but a library may keep something for each binding."""
_KEPT_STEPS: Final = 1024
"""Most steps of these runs together."""
_BOUND_AT: Final = 4
"""Runs with the same sizes after which a plan of one kernel is bound to them."""
_FEW_VALUES: Final = 8
"""Most inputs and outputs with which it is bound at all.

Of a model with 49 a bound run takes longer, for it copies them; between one or two and 49 nothing was measured.
"""
_COUNTED_SIZES: Final = 4096
"""Sets of sizes whose runs are counted."""
_NAMED_OUTSIDE: Final = 16
"""Sizes outside the ranges that a report names."""


class RangedSession(ChoosingSession):
    """A session of a plan whose inputs have sizes that vary.

    Args:
        executable: Its executable, for any sizes. The session takes ownership.
        strict: Whether to refuse sizes outside the ranges; otherwise they run, after one warning.
        shared: Memory that other plans share with it; none if None.

    Attributes:
        verified: As of `Session`.
    """

    def __init__(self, executable: Executable, *, strict: bool = False, shared: SharedMemory | None = None) -> None:
        self._executable = executable
        self._strict = strict
        self._shared = SharedMemory() if shared is None else shared
        self._blocks = SharedBlocks()
        self._outside: dict[str, None] = {}
        self._symbols: dict[str, SizeRange] = size_symbols(executable.inputs)
        self._axes: list[tuple[str, list[tuple[int, str]]]] = []
        for value in executable.inputs:
            varying = [(axis, str(dim.value)) for axis, dim in enumerate(value.shape or ()) if not isinstance(dim, int)]
            if varying:
                self._axes.append((value.name or "", varying))
        self._implied = [
            (value.name or "", value.shape)
            for value in executable.inputs
            if value.shape
            and any(not isinstance(dim, int) and not str(dim.value).isidentifier() for dim in value.shape)
        ]
        self._choosing = threading.Lock()
        self._verified = False
        self._arena_bytes = executable.arenas["cpu"]
        with contextlib.suppress(MemoryNeededError):  # which matters only if such sizes come
            self._arena_bytes = self._reserve({name: sizes.most for name, sizes in self._symbols.items()})
        self._kept: OrderedDict[tuple[int, ...], Session] = OrderedDict()
        typical = self._at(tuple(executable.sizes[name] for name in self._symbols))
        super().__init__(typical)
        self._came: dict[tuple[int, ...], int] = {}
        self._has_few_values = len(executable.inputs) + len(executable.outputs) <= _FEW_VALUES
        self._by_reference = self._referring() if len(typical.bound_steps) == 1 and executable.is_on_host else None

    def holds(self, feeds: Mapping[str, Any]) -> bool:
        """Return whether the sizes of these inputs are within the ranges.

        Raises:
            FeedError: As `session_for`.
        """
        sizes = self._sizes_of(feeds)
        return all(sizes[name] in within for name, within in self._symbols.items())

    def session_for(self, feeds: Mapping[str, Any]) -> Session:
        """Return a session for the sizes of these inputs.

        Raises:
            FeedError: If an input is missing, two inputs contradict each other, or a size is outside its range and this
                session is strict.
        """
        if not isinstance(feeds, Mapping):
            return self._current  # which says what is wrong
        return self._at(self._admitted(feeds))

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """Run the model; see `Session.run`."""
        if not isinstance(input_feed, Mapping):
            return self._current.run(output_names, input_feed, run_options)  # which says what is wrong
        sizes, session = self._admitted(input_feed), self._by_reference
        if session is None or self._is_to_be_bound(sizes):
            session = self._at(sizes)
        return session.run(output_names, input_feed, run_options)

    def get_inputs(self) -> list[NodeArg]:
        """Return the model's inputs in order; extents that vary have the names of their dimensions."""
        return [described_value(value) for value in self._executable.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the model's outputs in order; extents that vary are expressions of the inputs' dimensions."""
        return [described_value(value) for value in self._executable.outputs]

    @property
    def runs_until_bound(self) -> int:
        """See `Session.runs_until_bound`."""
        return 1 + _BOUND_AT if self._by_reference is not None and self._has_few_values else 1

    @property
    def output_bytes(self) -> int:
        """See `Session.output_bytes`; all sizes share the blocks."""
        return self._blocks.live_bytes

    @property
    def arena_bytes(self) -> int:
        """See `Session.arena_bytes`; of the largest sizes."""
        return self._arena_bytes

    @property
    def verified(self) -> bool:
        """Whether its outputs were compared with the reference's since it was loaded, for some sizes."""
        return self._verified

    @verified.setter
    def verified(self, value: bool) -> None:
        self._verified = value

    def report(self) -> SessionReport:
        """Return what runs where, which kernels are not those of the package, and sizes outside the ranges."""
        kernels = self._executable.source.reports
        return SessionReport(kernels=kernels, verified=self.verified, outside=tuple(self._outside))

    def clone(self, shared: SharedMemory | None = None) -> RangedSession:
        """Return a session with memory of its own, to run in another thread; see `Session.clone`."""
        executable = self._executable.clone(None if shared is None else shared.reserve)
        twin = RangedSession(executable, strict=self._strict, shared=shared)
        twin.verified = self.verified
        return twin

    def _reserve(self, sizes: Mapping[str, int]) -> int:
        """Make the arena, and the places of inputs and outputs, large enough; what is not used takes no pages.

        Returns:
            Bytes of the arena.
        """
        largest = self._executable.at(sizes)
        self._shared.places(largest)
        return largest.arenas["cpu"]

    def _referring(self) -> Session | None:
        """Return the session that passes by reference what has a varying size; None if the kernel does not take it."""
        try:
            return Session(self._executable.by_reference(), shared=self._shared)
        except KernelError:
            return None

    def _is_to_be_bound(self, sizes: tuple[int, ...]) -> bool:
        """Return whether a run of these sizes pays for binding; it is counted."""
        if not self._has_few_values:
            return False
        with self._choosing:
            if sizes in self._kept:
                return True
            if len(self._came) >= _COUNTED_SIZES:
                self._came.clear()
            came = self._came[sizes] = self._came.get(sizes, 0) + 1
            return came > _BOUND_AT

    def _at(self, sizes: tuple[int, ...]) -> Session:
        with self._choosing:
            session = self._kept.pop(sizes, None)
            if session is None:
                executable = self._executable.at(dict(zip(self._symbols, sizes, strict=True)))
                with self._shared.lock:  # a kernel may be bound to no other memory while it runs
                    session = Session(executable, shared=self._shared, blocks=self._blocks)
                most = min(_KEPT_SIZES, _KEPT_STEPS // max(1, len(session.bound_steps)))
                while self._kept and len(self._kept) >= most:
                    gone, _ = self._kept.popitem(last=False)  # the one not used for longest
                    self._came.pop(gone, None)
            self._kept[sizes] = session
            return session

    def _admitted(self, feeds: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the size of each symbol, those outside their ranges noted.

        Raises:
            FeedError: As `session_for`.
        """
        sizes = self._sizes_of(feeds)
        for name, size in sizes.items():
            if size not in self._symbols[name]:
                self._note_outside(name, size)
        return tuple(sizes[name] for name in self._symbols)

    def _sizes_of(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, int] = {}
        owners: dict[str, str] = {}
        for name, varying in self._axes:
            value = feeds.get(name)
            shape = value.shape if type(value) is np.ndarray else shape_given(name, feeds)
            for axis, symbol in varying:
                if axis >= len(shape):
                    raise FeedError(name, f"it has the shape {list(shape)}, and its axis {axis} is {symbol}")
                if found.setdefault(symbol, shape[axis]) != shape[axis]:
                    first = f"{found[symbol]} by input {owners[symbol]!r}"
                    raise FeedError(name, f"its shape {list(shape)} makes {symbol} {shape[axis]}, which is {first}")
                owners.setdefault(symbol, name)
        for name, shape in self._implied:
            follows, given = shape_at(shape, found), tuple(shape_given(name, feeds))
            if follows is not None and follows != given:
                raise FeedError(name, f"its shape {list(given)} is not {list(follows)}, as the other inputs make it")
        return found

    def _note_outside(self, name: str, size: int) -> None:
        sizes = self._symbols[name]
        said = f"{name} is {size}, outside {sizes.least}..{sizes.most}"
        advice = "optimize the model again with a range of --input-shapes that holds it"
        if self._strict:
            raise FeedError(name, f"{said}, for which the plan was made: {advice}")
        if not self._outside:
            warnings.warn(
                f"{said}, for which the plan was made and measured: it runs, unmeasured and unverified; {advice}",
                OutsideRangeWarning,
                stacklevel=4,
            )
        if len(self._outside) < _NAMED_OUTSIDE:
            self._outside[f"{name}={size}"] = None
