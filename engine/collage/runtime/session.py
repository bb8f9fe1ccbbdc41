"""Run a model as with `onnxruntime.InferenceSession`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir

from collage.runtime.bound_run import BoundRun
from collage.runtime.calling.feeds import Input, expected
from collage.runtime.calling.host_arrays import on_host
from collage.runtime.calling.lending import LENT_BYTES, Block, Lender
from collage.runtime.calling.rebinding import Rebinding
from collage.runtime.calling.shared_memory import SharedBlocks, SharedMemory
from collage.runtime.calling.small_run import SmallRun
from collage.runtime.executable import Executable
from collage.runtime.kernels.launching import BoundStep, DeviceWork, Launch
from collage.runtime.kernels.reports import SessionReport
from collage.runtime.places import Given
from collage.runtime.profiling import Profile
from collage_core.contract import BoundCall, TensorSpec, ValueKind
from collage_core.errors import FeedError, KernelError, did_you_mean
from collage_core.ir.values.tensor_spec import name_of_type


@dataclasses.dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output of a model, described as `onnxruntime.NodeArg` does.

    Attributes:
        name: Its name.
        shape: Extent of each axis: a number, a symbol, or None if unknown.
        type: Such as `tensor(float)` or `seq(tensor(int64))`.
    """

    name: str
    shape: list[int | str | None]
    type: str


class Session:
    """A model ready to run. Thread-safe: runs of one session are serialised, so `clone` it to run in parallel.

    Large inputs are read where the caller has them, and large outputs are handed out in the memory that kernels wrote
    (`docs/design/0026-run-hands-out-what-kernels-wrote.md`).

    Args:
        executable: The executable to run. The session takes ownership.
        shared: Memory that other sessions share with it; none if None.
        blocks: What outputs are lent in, likewise.

    Attributes:
        verified: Whether its outputs were compared with the reference's since it was loaded.
    """

    def __init__(
        self, executable: Executable, *, shared: SharedMemory | None = None, blocks: SharedBlocks | None = None
    ) -> None:
        self._executable = executable
        self.verified = False
        self._lock = threading.Lock() if shared is None else shared.lock
        if shared is None or not executable.is_on_host:  # what a device copies from and to is memory of its own making
            self._default = executable.bind()
        else:
            self._default = executable.bind(*shared.places(executable))
        self._rebinding = Rebinding(executable, self._default)
        # a run on a device is captured as a graph of its addresses: binding it anew costs more than the copies
        moves = executable.is_on_host
        self._inputs = {name: Input(buffer, in_place=moves) for name, buffer in self._default.input_buffers.items()}
        self._outputs = [value.name or "" for value in executable.outputs]
        self._handed_over = executable.handed_over
        self._made_anew = executable.made_anew
        # what may not stay once a run has returned; where there are devices, `device_work` is of the last run
        self._borrowed = [place for place in self._inputs.values() if place.is_referred_to] if moves else []
        self._passing = executable.passing if moves else ()
        self._lenders = {
            name: Lender(buffer.spec, None if blocks is None else blocks.of(buffer.spec))
            for name, buffer in self._default.output_buffers.items()
            if moves and buffer.spec.kind is ValueKind.PLANNED and buffer.spec.nbytes >= LENT_BYTES
        }
        self._is_all_copied = not self._lenders and not any(each.is_in_place for each in self._inputs.values())
        is_small = self._is_all_copied and SmallRun.serves(self._default)
        self._small = SmallRun(self._default, self._lock) if is_small else None

    def __repr__(self) -> str:
        kernels = self.report().kernels
        targets = ", ".join(dict.fromkeys(each.target for each in kernels)) or "no target"
        counted = f"{len(kernels)} kernel{'s' if len(kernels) != 1 else ''}"
        inputs, outputs = (
            ", ".join(f"{each.name}: {each.type}{each.shape}" for each in values)
            for values in (self.get_inputs(), self.get_outputs())
        )
        return f"<{type(self).__name__} of {counted} on {targets}: {inputs} -> {outputs}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session holds kernels and threads of this process, and cannot be pickled or copied: give other "
            "processes the path of the package, and have each load it with collage.load; for a thread take clone()"
        )

    def get_inputs(self) -> list[NodeArg]:
        """Return the model's inputs in order."""
        return [described_value(value, self._executable.spec(value)) for value in self._executable.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the model's outputs in order."""
        return [described_value(value, self._executable.spec(value)) for value in self._executable.outputs]

    @property
    def runs_until_bound(self) -> int:
        """Runs with inputs of the same shapes after which all further ones are alike."""
        return 1

    @property
    def output_bytes(self) -> int:
        """Bytes of memory that outputs are lent in: what callers hold of it, and `IDLE_BLOCKS` blocks of each at most.

        Smaller outputs, and those that kernels allocate, are not counted.
        """
        return sum(lender.live_bytes for lender in self._lenders.values())

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: object = None
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: Outputs to return, in this order; None for all in the model's order.
            input_feed: Value of every input, by name: arrays of the input's dtype, in any memory order, also read-only;
                objects that speak DLPack; numbers and nested lists, which take the input's dtype. No other thread may
                change an array while the model runs.
            run_options: Ignored: code written for ONNX Runtime passes its `RunOptions`.

        Returns:
            The outputs: arrays, or for other types what the kernel made. They are the caller's to keep and to change;
            no later run writes them.

        Raises:
            FeedError: If a name, dtype or shape does not fit; it says what is expected.
            KernelRunError: If a kernel fails; it names the kernel and its nodes.
            MemoryNeededError: If there is no memory for another output while earlier ones are held.
        """
        if self._small is not None and output_names is None and (copies := self._small(input_feed)) is not None:
            return copies
        wanted = self._outputs
        if output_names is not None:
            wanted = _names(output_names)
            for name in wanted:
                if name not in self._outputs:
                    raise _unknown("output", name, self._outputs)
            if len(once := list(dict.fromkeys(wanted))) < len(wanted):
                made = dict(zip(once, self.run(once, input_feed), strict=True))
                return [_copy(made[name]) if name in wanted[:at] else made[name] for at, name in enumerate(wanted)]
        values = self._checked(input_feed)
        with self._lock:
            if self._is_all_copied:  # a small model, of which looking at addresses would be a good part
                return self._copied(values, wanted)
            blocks: dict[str, Block] = {}
            run = self._default
            try:
                for name, lender in self._lenders.items():
                    blocks[name] = lender.take()
                run = self._filled(values, blocks)
                run.run()
                return [self._result(name, run, blocks) for name in wanted]
            finally:
                for name, block in blocks.items():  # those not lent
                    self._lenders[name].give_back(block)
                self._let_go(run)

    def bind(self, inputs: Mapping[str, Given] | None = None, outputs: Mapping[str, Given] | None = None) -> BoundRun:
        """Fix the memory of a run, so that nothing is copied, checked or locked when it runs.

        Not thread-safe: runs of this session and of everything bound from it share memory.

        Args:
            inputs: Arrays to read from, by name: C-contiguous, of the exact dtype and shape; of NumPy or of another
                library that speaks DLPack, such as CPU tensors of PyTorch. Inputs not named get arrays of their own, to
                be written into through `BoundRun.inputs`. Arrays of a device of the plan are read where they are,
                likewise; a device's name has one made there. What writes such an array on a stream of the caller's has
                to be done before a run: the plan's own stream waits for no other.
            outputs: Arrays to write into, likewise. They are written when a run returns.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
        """
        with self._lock:
            return self._executable.bind(on_host(inputs or {}), on_host(outputs or {}))

    def set_inputs(self, feeds: Mapping[str, Any]) -> None:
        """Copy inputs for `run_bound`, `profile` and `device_work`; `run` may overwrite them.

        Args:
            feeds: As for `run`.

        Raises:
            FeedError: If a name, dtype or shape does not fit; it says what is expected.
        """
        values = self._checked(feeds)
        with self._lock:
            for place, value in values:
                place.put(value)

    @property
    def bound_call(self) -> BoundCall:
        """The call behind `run_bound`, for loops that count nanoseconds. Keep the session alive while it is in use."""
        return self._default.call

    @property
    def bound_steps(self) -> tuple[BoundStep, ...]:
        """The steps that `bound_call` makes, in order; a clock between them says what each takes in its place."""
        return self._default.steps

    def run_bound(self) -> list[Any]:
        """Run on the inputs of `set_inputs`, and return the outputs uncopied.

        The next run overwrites what is returned. Not thread-safe.
        """
        return self._default.run()

    def profile(self, feeds: Mapping[str, Any] | None = None, *, runs: int = 20, warmup: int = 3) -> Profile:
        """Time every kernel in place.

        Args:
            feeds: Input values as for `run`; None for those of `set_inputs`.
            runs: Number of timed runs.
            warmup: Number of untimed runs before them.
        """
        values = [] if feeds is None else self._checked(feeds)
        with self._lock:
            for place, value in values:
                place.put(value)
            return self._default.profile(runs, warmup)

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Current launch mode of the kernels on devices in `run`, and why some are not in a graph."""
        return self._default.launches

    def device_work(self) -> DeviceWork:
        """Return the device work of each run, once the launch modes are settled; run the model until then if needed.

        These runs use the inputs of `set_inputs`, or of the last `run` of a plan with devices.
        """
        with self._lock:
            while not self._default.is_settled:  # at most twice: a run to warm up, and one that captures
                self._default.run()
            return self._default.device_work

    def report(self) -> SessionReport:
        """Return what runs where, and which kernels are not those of the package."""
        return SessionReport(kernels=self._executable.source.reports, verified=self.verified)

    @property
    def arena_bytes(self) -> int:
        """Bytes of the CPU's memory for all internal values and the kernels' scratch."""
        return self._executable.arenas["cpu"]

    def clone(self, shared: SharedMemory | None = None) -> Session:
        """Return a session with memory of its own, to run in another thread.

        Reentrant kernels are shared, weights and threads included; other kernels are loaded again.

        Args:
            shared: Memory that other clones share with it; none if None.
        """
        twin = Session(self._executable.clone(None if shared is None else shared.reserve), shared=shared)
        twin.verified = self.verified
        return twin

    def _checked(self, feeds: Mapping[str, Any]) -> list[tuple[Input, Any]]:
        places = self._inputs
        if type(feeds) is not dict and not isinstance(feeds, Mapping):
            example = ", ".join(f"{name!r}: ..." for name in places)
            kind = type(feeds).__name__
            raise FeedError("feeds", f"give a value for each input by its name, {{{example}}}, not a {kind}")
        if feeds.keys() != places.keys():
            for name in feeds:
                if name not in places:
                    raise _unknown("input", str(name), places)
            name = next(name for name in places if name not in feeds)
            raise FeedError(name, f"no value given for this input ({expected(places[name].spec)})")
        return [(place, place.checked(feeds[name])) for name, place in places.items()]

    def _copied(self, values: Sequence[tuple[Input, Any]], wanted: Sequence[str]) -> list[Any]:
        """Run without binding anew: inputs and outputs of known size are copied, others passed by reference."""
        for place, value in values:
            place.refer(value)
        try:
            made = self._default.run()
            if wanted is not self._outputs:
                by_name = dict(zip(self._outputs, made, strict=True))
                made = [by_name[name] for name in wanted]
            handed_over = self._handed_over
            return [value if name in handed_over else _copy(value) for name, value in zip(wanted, made, strict=True)]
        finally:
            self._let_go(self._default)

    def _let_go(self, run: BoundRun) -> None:
        """Keep no input that was read by reference, nor what was made anew: the caller has it, or nobody needs it."""
        for name in self._made_anew:
            run.output_buffers[name].put(None)
        for place in self._borrowed:
            place.forget()
        for buffer in self._passing:
            buffer.put(None)

    def _filled(self, values: Sequence[tuple[Input, Any]], blocks: Mapping[str, Block]) -> BoundRun:
        """Return the run that reads these inputs and writes into these blocks."""
        outputs = {name: block.address for name, block in blocks.items()}
        inputs = {place.spec.name: at for place, value in values if (at := place.address(value))}
        try:
            run = self._rebinding.at(inputs, outputs)
        except KernelError:
            if not inputs:
                raise
            # NumPy aligns arrays to the element's size, and this kernel needs more: the session's own places have it
            for place in self._inputs.values():
                place.copy_always()
            return self._filled(values, blocks)
        for place, value in values:
            if place.spec.name not in inputs:
                place.refer(value)
        return run

    def _result(self, name: str, run: BoundRun, blocks: dict[str, Block]) -> Any:
        """Return an output: lent if it is in one of the blocks, which leaves them then; handed over, or a copy."""
        block = blocks.pop(name, None)
        if block is not None:
            return self._lenders[name].lend(block)
        value = run.output_buffers[name].value
        return value if name in self._handed_over else _copy(value)


def _names(output_names: Sequence[str]) -> list[str]:
    if isinstance(output_names, str):  # which is a sequence of names too, but not of those that are meant
        raise FeedError(output_names, f"give a list of names of outputs, [{output_names!r}], or None for all")
    return list(output_names)


def _unknown(kind: str, name: str, known: Collection[str]) -> FeedError:
    has = ", ".join(known) or "none"
    return FeedError(name, f"the model has no such {kind}; it has {has}{did_you_mean(name, known)}")


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value


def described_value(value: ir.Value, spec: TensorSpec | None = None) -> NodeArg:
    """Return the description of an input or output, of its sizes in a run if the spec has them."""
    shape: list[int | str | None] = []
    if spec is not None and spec.kind is ValueKind.PLANNED:
        shape = list(spec.static_shape)
    elif value.shape is not None:
        shape = [extent if isinstance(extent, int) else extent.value for extent in value.shape]
    return NodeArg(value.name or "", shape, name_of_type(value.type))
