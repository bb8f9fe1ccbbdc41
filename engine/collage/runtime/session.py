"""Run a model as with `onnxruntime.InferenceSession`."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.runtime.bound_run import BoundRun
from collage.runtime.executable import Executable
from collage.runtime.kernels.launching import DeviceWork, Launch
from collage.runtime.kernels.loading import LoweredAgain
from collage.runtime.places import Given
from collage.runtime.profiling import Profile
from collage.values.foreign_values import expected_foreign, fitted_foreign
from collage_core.contract import BoundCall, Buffer, TensorSpec, ValueKind
from collage_core.errors import FeedError, did_you_mean
from collage_core.ir.values.tensor_spec import name_of_type

Array = np.ndarray[Any, Any]


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

    Args:
        executable: The executable to run. The session takes ownership.
    """

    def __init__(self, executable: Executable) -> None:
        self._executable = executable
        self._lock = threading.Lock()
        self._default = executable.bind()
        self._inputs = {name: _Input(buffer) for name, buffer in self._default.input_buffers.items()}
        self._outputs = [value.name or "" for value in executable.outputs]

    def get_inputs(self) -> list[NodeArg]:
        """Return the model's inputs in order."""
        return [_describe(value) for value in self._executable.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return the model's outputs in order."""
        return [_describe(value) for value in self._executable.outputs]

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        """Run the model.

        Args:
            output_names: Outputs to return, in this order; None for all in the model's order.
            feeds: Value of every input, by name: arrays of the input's dtype, in any memory order, also read-only;
                objects that speak DLPack; numbers and nested lists, which take the input's dtype.

        Returns:
            Copies of the outputs: arrays, or for other types what the kernel made.

        Raises:
            FeedError: If a name, dtype or shape does not fit; it says what is expected.
            KernelRunError: If a kernel fails; it names the kernel and its nodes.
        """
        wanted = self._outputs if output_names is None else _names(output_names)
        for name in wanted:
            if name not in self._outputs:
                raise _unknown("output", name, self._outputs)
        values = self._checked(feeds)
        held = self._default.output_buffers
        with self._lock:
            for place, value in values:
                place.put(value)
            self._default.run()
            return [_copy(held[name].value) for name in wanted]

    def bind(self, inputs: Mapping[str, Given] | None = None, outputs: Mapping[str, Given] | None = None) -> BoundRun:
        """Fix the memory of a run, so that nothing is copied, checked or locked when it runs.

        Not thread-safe: runs of this session and of everything bound from it share memory.

        Args:
            inputs: Arrays to read from, by name: C-contiguous, of the exact dtype and shape. Inputs not named get
                arrays of their own, to be written into through `BoundRun.inputs`. Arrays of a device of the plan, which
                speak DLPack, are read where they are; a device's name has one made there. What writes such an array
                on a stream of the caller's has to be done before a run: the plan's own stream waits for no other.
            outputs: Arrays to write into, likewise. They are written when a run returns.

        Raises:
            FeedError: If a name is unknown, or an array does not fit or overlaps one that is written.
        """
        with self._lock:
            return self._executable.bind(inputs, outputs)

    @property
    def bound_call(self) -> BoundCall:
        """The call behind `run_bound`, for loops that count nanoseconds. Keep the session alive while it is in use."""
        return self._default.call

    def run_bound(self) -> list[Any]:
        """Run on what the inputs hold from the last `run`, and return the outputs uncopied.

        The next run overwrites what is returned. Not thread-safe.
        """
        return self._default.run()

    def profile(self, feeds: Mapping[str, Any] | None = None, *, runs: int = 20, warmup: int = 3) -> Profile:
        """Time every kernel in place.

        Args:
            feeds: Input values as for `run`; None for the current content of the inputs.
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

        These runs use the inputs of the last `run`.
        """
        with self._lock:
            while not self._default.is_settled:  # at most twice: a run to warm up, and one that captures
                self._default.run()
            return self._default.device_work

    @property
    def lowered_again(self) -> tuple[LoweredAgain, ...]:
        """Kernels that were lowered again because their artifacts do not fit this machine; they are unmeasured."""
        return self._executable.lowered_again

    def clone(self) -> Session:
        """Return a session with memory of its own, to run in another thread.

        Reentrant kernels are shared, weights and threads included; other kernels are loaded again.
        """
        return Session(self._executable.clone())

    def _checked(self, feeds: Mapping[str, Any]) -> list[tuple[_Input, Any]]:
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
            raise FeedError(name, f"no value given for this input ({_expected(places[name].spec)})")
        return [(place, place.checked(feeds[name])) for name, place in places.items()]


class _Input:
    """Buffer of one input, with its cheap-to-compare properties precomputed: every run checks its inputs."""

    __slots__ = ("_array", "_buffer", "_dtype", "_shape", "spec")

    def __init__(self, buffer: Buffer) -> None:
        self.spec = buffer.spec
        self._buffer = buffer
        planned = buffer.spec.kind is ValueKind.PLANNED
        self._array = buffer.array if planned else None
        self._dtype = buffer.spec.numpy_dtype if planned else None
        self._shape = buffer.spec.shape

    def checked(self, value: Any) -> Any:
        """Check a value and return it in the form that `put` takes."""
        plain = self._array is not None and type(value) is np.ndarray
        if plain and value.shape == self._shape and value.dtype == self._dtype:
            return value
        return _fitted(value, self.spec)

    def put(self, value: Any) -> None:
        """Store what `checked` returned."""
        if self._array is None:
            self._buffer.put(value)
        else:
            np.copyto(self._array, value)


def _names(output_names: Sequence[str]) -> list[str]:
    if isinstance(output_names, str):  # which is a sequence of names too, but not of those that are meant
        raise FeedError(output_names, f"give a list of names of outputs, [{output_names!r}], or None for all")
    return list(output_names)


def _unknown(kind: str, name: str, known: Collection[str]) -> FeedError:
    has = ", ".join(known) or "none"
    return FeedError(name, f"the model has no such {kind}; it has {has}{did_you_mean(name, known)}")


def _fitted(value: Any, spec: TensorSpec) -> Any:
    """Convert a value to an array of the input's dtype and shape; sequences and optional values likewise."""
    if spec.dtype is None:
        return fitted_foreign(value, spec)
    array = _as_array(value, spec)
    fits = array.dtype == spec.numpy_dtype or (spec.dtype == ir.DataType.STRING and array.dtype.kind in "OUS")
    if fits and spec.shape is not None:
        fits = array.ndim == len(spec.shape) and all(
            extent in (None, given) for extent, given in zip(spec.shape, array.shape, strict=True)
        )
    if not fits:
        raise FeedError(spec.name, f"expected {_expected(spec)}, got {array.dtype}{list(array.shape)}")
    if spec.kind is ValueKind.FOREIGN:
        # kept by reference: the caller may change its own array before or while the model runs
        return np.array(array, object if spec.dtype == ir.DataType.STRING else None)
    return array


def _as_array(value: Any, spec: TensorSpec) -> Array:
    try:
        if isinstance(value, np.ndarray):
            return value
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.from_dlpack(value)
        array = np.asarray(value)
        typed = hasattr(value, "dtype")  # a NumPy scalar, or another library's array
        if typed or spec.dtype == ir.DataType.STRING or not np.can_cast(array.dtype, spec.numpy_dtype, "same_kind"):
            return array
        return np.asarray(value, spec.numpy_dtype)
    except (TypeError, ValueError, OverflowError, BufferError, RuntimeError) as error:
        kind = type(value).__name__
        raise FeedError(spec.name, f"expected {_expected(spec)}, and {kind} cannot be read as one: {error}") from error


def _expected(spec: TensorSpec) -> str:
    if spec.dtype is None:
        return expected_foreign(spec)
    dtype = "strings" if spec.dtype == ir.DataType.STRING else str(spec.numpy_dtype)
    if spec.shape is None:
        return f"{dtype} of any shape"
    return f"{dtype}[{', '.join('?' if extent is None else str(extent) for extent in spec.shape)}]"


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list | tuple):
        return [_copy(item) for item in value]
    return value


def _describe(value: ir.Value) -> NodeArg:
    shape: list[int | str | None] = []
    if value.shape is not None:
        shape = [extent if isinstance(extent, int) else extent.value for extent in value.shape]
    return NodeArg(value.name or "", shape, name_of_type(value.type))
