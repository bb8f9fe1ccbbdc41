"""The used part of cuDNN; all code above it runs with the library or an emulation.

Graphs go through NVIDIA's frontend, whose version 1.26 needs no GPU to describe and validate them. Tensors are
copied from one layout to another by `cudnnTransformTensor`, through ctypes: cuDNN 9.20 refuses that copy as a
graph of its own ("NOT_SUPPORTED_LAYOUT", observed).
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from collage_core.errors import DeviceError
from collage_cuda import Contexts
from collage_cudnn.errors import CudnnError, NotSupportedError, cudnn_error
from collage_cudnn.graph import DataType, Graph, Operation

MULTIPLYING = frozenset({"conv_fprop", "conv_dgrad", "matmul", "sdpa"})
"""Operations that may multiply on tensor cores. Every engine reports tensor cores for the other fused operations."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """An execution plan.

    Attributes:
        name: Engine and knobs, as the frontend writes them.
        position: Its number among all plans of the heuristics, including those that cannot be built.
        workspace_bytes: Scratch memory it needs.
        data: The plan and its graph, serialised; valid for the library version and the device it was made for.
    """

    name: str
    position: int
    workspace_bytes: int
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """Plans that the library's heuristics know of a graph, none of them built yet.

    Attributes:
        names: Engine and knobs of each, best guess first; a name may be there twice.
        build: Builds the plan at a position. Raises a `CudnnError` if it cannot be built (a `NotSupportedError` also
            if it was left out), and a `DeviceError` if the device fails.
    """

    names: tuple[str, ...]
    build: Callable[[int], Found]


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """A copy of a tensor with different strides.

    Attributes:
        dtype: Element type.
        dims: Extents.
        before: Strides of the source.
        after: Strides of the destination.
    """

    dtype: DataType
    dims: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


Enqueue = Callable[[], None]
"""Enqueues one step and returns; raises the errors of `Library`."""


class Placed(Protocol):
    """Device memory that is freed when the last reference to this object is gone."""

    @property
    def pointer(self) -> int:
        """Its address."""


class Library(Protocol):
    """The calls to cuDNN and to the device.

    All calls raise `CudnnError` if the library fails, its subclass `NotSupportedError` if the graph is the reason,
    and `DeviceError` if the device is: it lacks memory, is lost, or its driver is too old.
    """

    def version(self) -> int:
        """Return the version of the loaded library, as `cudnnGetVersion` encodes it: 92000 for 9.20.0."""

    def handle(self, device: str, stream: int | None) -> int:
        """Create a handle on a device; with a stream, its work is enqueued there."""

    def put_on(self, handle: int, stream: int) -> None:
        """Set the stream on which a handle's work is enqueued."""

    def offer(self, graph: Graph, handle: int, *, exact: bool) -> Offer:
        """Ask the library's heuristics for plans.

        Args:
            graph: Graph that the plans compute.
            handle: Handle on the device they are for.
            exact: Whether float32 products do without tensor cores.

        Raises:
            CudnnError: If there is none; a `NotSupportedError` if it is for the graph.
            DeviceError: If the device fails.
        """

    def executed(self, data: bytes, handle: int, places: Mapping[int, int], workspace: int) -> Enqueue:
        """Return a call that enqueues a plan with its tensors' addresses.

        Args:
            data: A plan that was built.
            handle: Handle with a stream.
            places: Address of each tensor in memory, by identifier.
            workspace: Address of its scratch memory.
        """

    def converted(self, conversion: Conversion, handle: int, source: int, destination: int) -> Enqueue:
        """Return a call that enqueues a copy into another layout."""

    def place(self, array: np.ndarray[Any, Any], handle: int) -> Placed:
        """Copy an array to memory of the handle's device, and wait for it."""


class Cudnn:
    """The installed library.

    Args:
        frontend: The module `cudnn`, with the library loaded.
        backend: The same library, for functions the frontend lacks.
        contexts: Makes devices current, and allocates memory.
    """

    def __init__(self, frontend: Any, backend: Any, contexts: Contexts) -> None:
        self._frontend = frontend
        self._backend = backend
        self._contexts = contexts
        self._devices: dict[int, str] = {}

    def version(self) -> int:
        """See `Library.version`."""
        return int(self._frontend.backend_version())

    def handle(self, device: str, stream: int | None) -> int:
        """See `Library.handle`."""
        made = ctypes.c_void_p()
        with self._failing(device), self._contexts.current(device):
            # not by the frontend, which keeps to itself why there is none
            self._call(device, "cudnnCreate", ctypes.byref(made))
        assert made.value is not None
        self._devices[made.value] = device
        if stream is not None:
            self.put_on(made.value, stream)
        return made.value

    def put_on(self, handle: int, stream: int) -> None:
        """See `Library.put_on`."""
        device = self._device(handle)
        with self._failing(device), self._contexts.current(device):
            self._call(device, "cudnnSetStream", ctypes.c_void_p(handle), ctypes.c_void_p(stream))

    def offer(self, graph: Graph, handle: int, *, exact: bool) -> Offer:
        """See `Library.offer`."""
        device = self._device(handle)
        with self._failing(device), self._contexts.current(device):
            drawn = self.drawn(graph, handle=handle)
            count = self.prepared(drawn, graph, exact=exact, device=device)
        names = tuple(str(drawn.get_plan_name_at_index(position)) for position in range(count))

        def build(position: int) -> Found:
            with self._failing(device), self._contexts.current(device):  # not while whoever asked works with it
                return self.built(drawn, position, device)

        return Offer(names, build)

    def drawn(self, graph: Graph, **where: Any) -> Any:
        """Convert a graph to the frontend's form and validate it.

        Args:
            graph: The described graph.
            **where: Handle to build for, as the constructor of `pygraph` takes it.

        Raises:
            CudnnError: If the frontend refuses it, or fails.
        """
        types = self._frontend.data_type
        whole = self._frontend.pygraph(
            io_data_type=getattr(types, graph.dtype.name),
            intermediate_data_type=types.FLOAT,
            compute_data_type=types.FLOAT,
            **where,
        )
        tensors = {
            each.name: whole.tensor(
                name=each.name,
                dim=list(each.dims),
                stride=list(each.strides),
                data_type=getattr(types, graph.dtype.name),
                uid=number,
            )
            for number, each in enumerate(graph.inputs, 1)
        }
        with self._failing(self._device(where.get("handle"))):
            for operation in graph.operations:
                tensors[operation.writes.name] = self._operation(whole, operation, tensors)
            output = tensors[graph.output.name]
            output.set_output(True).set_data_type(getattr(types, graph.dtype.name)).set_uid(len(graph.in_memory))
            whole.validate()
        return whole

    def prepared(self, drawn: Any, graph: Graph, *, exact: bool, device: str = "cuda") -> int:
        """Query the heuristics about a graph; return how many plans they found.

        Non-deterministic plans are left out. NVIDIA's cuDNN documentation, "Reproducibility (Determinism)": on GPUs
        of one architecture a version of the library gives the same bits in every run, except for routines that use
        atomic operations, among them an algorithm for the gradient of a convolution's data, which is the operation
        of a transposed convolution. The note `CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC` marks an engine of that kind
        (`cudnnBackendNumericalNote_t`).

        Raises:
            CudnnError: If there is none, with the reason.
        """
        frontend, notes = self._frontend, self._frontend.numerical_note
        unwanted = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION]
        multiplies = not MULTIPLYING.isdisjoint(each.kind for each in graph.operations)
        if multiplies and graph.dtype is DataType.FLOAT and exact:
            unwanted += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        with self._failing(device):
            drawn.build_operation_graph()
            drawn.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
            drawn.deselect_numeric_notes(unwanted)
        return int(drawn.get_execution_plan_count())

    def built(self, drawn: Any, index: int, device: str = "cuda") -> Found:
        """Build one of the plans.

        Raises:
            CudnnError: If it cannot be built; a `NotSupportedError` also if it was left out.
        """
        with self._failing(device):
            drawn.build_plan_at_index(index)
            scratch = int(drawn.get_workspace_size_plan_at_index(index))
        # what is serialised is the plan that was built last
        return Found(str(drawn.get_plan_name_at_index(index)), index, scratch, bytes(drawn.serialize()))

    def executed(self, data: bytes, handle: int, places: Mapping[int, int], workspace: int) -> Enqueue:
        """See `Library.executed`."""
        device = self._device(handle)
        with self._failing(device), self._contexts.current(device):
            plan = self._frontend.pygraph(handle=handle)
            plan.deserialize(handle, list(data))
        pointers, execute, failures = dict(places), plan.execute, self._failures

        def call() -> None:
            try:
                execute(pointers, workspace, handle)
            except failures as error:
                raise self._error(device, error) from error

        return call

    def converted(self, conversion: Conversion, handle: int, source: int, destination: int) -> Enqueue:
        """See `Library.converted`."""
        device = self._device(handle)
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)  # factors are float32 for all types up to float32
        pointer = ctypes.c_void_p
        with contextlib.ExitStack() as made:
            before, after = (
                self._descriptor(device, conversion, strides, made) for strides in (conversion.before, conversion.after)
            )
            arguments = (
                *(pointer(handle), ctypes.byref(one), before, pointer(source)),
                *(ctypes.byref(zero), after, pointer(destination)),
            )

            def call() -> None:
                self._call(device, "cudnnTransformTensor", *arguments)

            # they live as long as the call; when the process ends the library may be gone before it
            weakref.finalize(call, made.pop_all().close).atexit = False
        return call

    def place(self, array: np.ndarray[Any, Any], handle: int) -> Placed:
        """See `Library.place`."""
        device = self._device(handle)
        with self._failing(device):
            return self._contexts.placed(device, array)

    def _operation(self, whole: Any, operation: Operation, tensors: Mapping[str, Any]) -> Any:
        """Add an operation to the frontend's graph; return its result."""
        arguments: dict[str, Any] = {argument: tensors[name] for argument, name in operation.reads.items()}
        attributes = dict(operation.attributes)
        if operation.kind == "sdpa":
            attributes["generate_stats"] = False
            if attributes.pop("causal", False):
                attributes["diagonal_alignment"] = self._frontend.diagonal_alignment.TOP_LEFT
                attributes["diagonal_band_right_bound"] = 0
        if operation.kind in ("layernorm", "rmsnorm", "instancenorm"):
            attributes["norm_forward_phase"] = self._frontend.norm_forward_phase.INFERENCE
        for argument, number in operation.scalars.items():
            scalar = whole.tensor_scalar(number, self._frontend.scalar_type.RUNTIME_PARAM)
            unit = [1] * len(operation.writes.dims)
            arguments[argument] = scalar.set_dim(unit).set_stride(unit)
        made = getattr(whole, operation.kind)(**arguments, **attributes)
        result = made[0] if isinstance(made, list | tuple) else made
        return result.set_dim(list(operation.writes.dims)).set_stride(list(operation.writes.strides))

    def _descriptor(
        self, device: str, conversion: Conversion, strides: Sequence[int], owner: contextlib.ExitStack
    ) -> ctypes.c_void_p:
        """Create a tensor descriptor; its owner destroys it."""
        made = ctypes.c_void_p()
        self._call(device, "cudnnCreateTensorDescriptor", ctypes.byref(made))
        owner.callback(self._call, device, "cudnnDestroyTensorDescriptor", made)
        rank = len(conversion.dims)
        numbers = ctypes.c_int * rank
        self._call(
            device,
            "cudnnSetTensorNdDescriptor",
            made,
            ctypes.c_int(_CODES[conversion.dtype]),
            ctypes.c_int(rank),
            numbers(*conversion.dims),
            numbers(*strides),
        )
        return made

    def _call(self, device: str, function: str, *arguments: Any) -> None:
        if status := getattr(self._backend, function)(*arguments):
            self._backend.cudnnGetErrorString.restype = ctypes.c_char_p
            raise cudnn_error(device, f"{function}: {self._backend.cudnnGetErrorString(status).decode()}")

    def _device(self, handle: int | None) -> str:
        return "cuda" if handle is None else self._devices.get(handle, "cuda")

    @property
    def _failures(self) -> tuple[type[Exception], ...]:
        """Exceptions of the frontend; it raises `ValueError` for arguments it does not understand."""
        return (RuntimeError, ValueError, self._frontend.cudnnGraphNotSupportedError)

    @contextlib.contextmanager
    def _failing(self, device: str) -> Iterator[None]:
        """Convert errors of the frontend or the driver raised in the block into errors of this module."""
        failures: tuple[type[Exception], ...] = (OSError, *self._failures)
        try:
            yield
        except (CudnnError, DeviceError):
            raise
        except failures as error:
            raise self._error(device, error) from error

    def _error(self, device: str, error: Exception) -> CudnnError | DeviceError:
        if "Deselecting" in str(error):
            return NotSupportedError(_DESELECTED)
        return cudnn_error(device, str(error), refused=isinstance(error, self._frontend.cudnnGraphNotSupportedError))


_CODES = {DataType.FLOAT: 0, DataType.HALF: 2, DataType.BFLOAT16: 9}
"""Values of `cudnnDataType_t`."""


_DESELECTED = (
    "every plan that the library knows multiplies float32 by tensor cores, is not deterministic, or rounds its sums"
)
