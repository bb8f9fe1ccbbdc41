"""The part of cuDNN that is used: everything above it runs against the library or an emulation.

Graphs go through NVIDIA's frontend, whose version 1.26 needs no GPU to describe and validate them. Tensors are copied
from one layout to another by `cudnnTransformTensor`, through ctypes: as a graph of its own, cuDNN 9.20 refuses that
copy ("NOT_SUPPORTED_LAYOUT"; it was asked).
"""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from collage_core.device import Contexts
from collage_cudnn.graph import DataType, Graph, Operation

MULTIPLYING = frozenset({"conv_fprop", "conv_dgrad", "matmul", "sdpa"})
"""Operations that may multiply by tensor cores. Of what else is fused, every engine says that it does."""


class CudnnError(Exception):
    """A call failed; its message has what failed and the library's words."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """An execution plan.

    Attributes:
        name: Engine and knobs, as the frontend writes them.
        workspace_bytes: Scratch memory it needs.
        data: The plan and its graph, serialised; good for the version and the device it was made for.
    """

    name: str
    workspace_bytes: int
    data: bytes


@dataclasses.dataclass(frozen=True, slots=True)
class Conversion:
    """A copy of a tensor into other strides.

    Attributes:
        dtype: Of its elements.
        dims: Extents.
        before: Strides of what is read.
        after: Strides of what is written.
    """

    dtype: DataType
    dims: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]


Enqueue = Callable[[], None]
"""Enqueues one step and returns; raises `CudnnError`."""


class Placed(Protocol):
    """Memory of a device that is given back when nobody holds this any more."""

    pointer: int


class Library(Protocol):
    """What is asked of cuDNN and of the device."""

    def version(self) -> int:
        """Of the loaded library, as `cudnnGetVersion` counts: 92000 for 9.20.0."""

    def handle(self, device: str, stream: int | None) -> int:
        """A new handle on a device; with a stream, whatever it enqueues goes there.

        Raises:
            CudnnError: If the device or the library does not start.
        """

    def plans(
        self, graph: Graph, handle: int, *, exact: bool, workspace_limit_bytes: int, name: str | None = None
    ) -> Iterator[Found]:
        """Plans of the library's heuristics, best guess first, each built when it is asked for.

        Args:
            graph: What they compute.
            handle: On the device they are for.
            exact: Without tensor cores where float32 is multiplied.
            workspace_limit_bytes: Most scratch memory.
            name: The only one that is wanted.

        Raises:
            CudnnError: If the library takes the graph for none of its own; the message says why.
        """

    def executed(self, data: bytes, handle: int, places: Mapping[int, int], workspace: int) -> Enqueue:
        """A plan with its places.

        Args:
            data: From `plans`.
            handle: With a stream.
            places: Address of each tensor in memory, by identifier.
            workspace: Address of its scratch memory.

        Raises:
            CudnnError: If this library, or this device, does not take the plan.
        """

    def converted(self, conversion: Conversion, handle: int, source: int, destination: int) -> Enqueue:
        """A copy into another layout.

        Raises:
            CudnnError: If the library does not take the strides.
        """

    def place(self, array: np.ndarray[Any, Any], handle: int) -> Placed:
        """Copies an array to memory of the handle's device, and waits for it.

        Raises:
            CudnnError: If there is too little.
        """


class Cudnn:
    """The library itself.

    Args:
        frontend: The module `cudnn`, with the library loaded.
        backend: The same library, for what the frontend has not.
        contexts: Makes devices current, and gives memory.
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
        try:
            with self._contexts.current(device):
                handle = int(self._frontend.create_handle())
                if stream is not None:
                    self._frontend.set_stream(handle=handle, stream=stream)
        except (OSError, RuntimeError) as error:
            raise CudnnError(f"no handle on {device}: {error}") from error
        self._devices[handle] = device
        return handle

    def plans(
        self, graph: Graph, handle: int, *, exact: bool, workspace_limit_bytes: int, name: str | None = None
    ) -> Iterator[Found]:
        """See `Library.plans`."""
        device = self._devices[handle]
        with self._contexts.current(device):
            drawn = self.drawn(graph, handle=handle)
            count = self.prepared(drawn, graph, exact=exact, workspace_limit_bytes=workspace_limit_bytes)
        reason = "the library's heuristics know no plan"
        found_none = True
        for index in range(count):
            if name not in (None, str(drawn.get_plan_name_at_index(index))):
                continue
            with self._contexts.current(device):  # not while whoever asked for the plan works with it
                found = self.built(drawn, index)
            if isinstance(found, str):
                reason = found
            elif found.workspace_bytes <= workspace_limit_bytes:
                found_none = False
                yield found
        if found_none:
            raise CudnnError(reason)

    def drawn(self, graph: Graph, **where: Any) -> Any:
        """A graph as the frontend's, validated.

        Args:
            graph: The graph.
            **where: The handle it is for, as the constructor of `pygraph` takes it.

        Raises:
            CudnnError: If the frontend refuses it.
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
        try:
            for operation in graph.operations:
                tensors[operation.writes.name] = self._operation(whole, operation, tensors)
            output = tensors[graph.output.name]
            output.set_output(True).set_data_type(getattr(types, graph.dtype.name)).set_uid(len(graph.in_memory))
            whole.validate()
        except (RuntimeError, self._frontend.cudnnGraphNotSupportedError) as error:
            raise CudnnError(_words(error)) from error
        return whole

    def prepared(self, drawn: Any, graph: Graph, *, exact: bool, workspace_limit_bytes: int) -> int:
        """Asks the heuristics about a graph that was drawn; returns how many plans they know.

        Raises:
            CudnnError: If they know none, and why.
        """
        frontend, notes = self._frontend, self._frontend.numerical_note
        unwanted = [notes.NONDETERMINISTIC, notes.REDUCED_PRECISION_REDUCTION]
        multiplies = not MULTIPLYING.isdisjoint(each.kind for each in graph.operations)
        if multiplies and graph.dtype is DataType.FLOAT and exact:
            unwanted += [notes.TENSOR_CORE, notes.DOWN_CONVERT_INPUTS]
        try:
            drawn.build_operation_graph()
            drawn.create_execution_plans([frontend.heur_mode.A, frontend.heur_mode.FALLBACK])
            drawn.deselect_numeric_notes(unwanted)
            drawn.deselect_workspace_greater_than(workspace_limit_bytes)
        except (RuntimeError, frontend.cudnnGraphNotSupportedError) as error:
            raise CudnnError(_words(error)) from error
        return int(drawn.get_execution_plan_count())

    def built(self, drawn: Any, index: int) -> Found | str:
        """Builds one of the plans; or says why it cannot be."""
        try:
            drawn.build_plan_at_index(index)
            scratch = int(drawn.get_workspace_size_plan_at_index(index))
        except (RuntimeError, self._frontend.cudnnGraphNotSupportedError) as error:
            words = _words(error)
            return _DESELECTED if "Deselecting" in words else words
        # what is serialised is the plan that was built last
        return Found(str(drawn.get_plan_name_at_index(index)), scratch, bytes(drawn.serialize()))

    def executed(self, data: bytes, handle: int, places: Mapping[int, int], workspace: int) -> Enqueue:
        """See `Library.executed`."""
        try:
            with self._contexts.current(self._devices[handle]):
                plan = self._frontend.pygraph(handle=handle)
                plan.deserialize(handle, list(data))
        except (RuntimeError, self._frontend.cudnnGraphNotSupportedError) as error:
            raise CudnnError(_words(error)) from error
        pointers, execute = dict(places), plan.execute

        def call() -> None:
            try:
                execute(pointers, workspace, handle)
            except RuntimeError as error:
                raise CudnnError(_words(error)) from error

        return call

    def converted(self, conversion: Conversion, handle: int, source: int, destination: int) -> Enqueue:
        """See `Library.converted`."""
        before, after = (self._descriptor(conversion, strides) for strides in (conversion.before, conversion.after))
        one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)  # factors are float32 for all types up to float32
        pointer = ctypes.c_void_p
        arguments = (
            *(pointer(handle), ctypes.byref(one), before, pointer(source)),
            *(ctypes.byref(zero), after, pointer(destination)),
        )

        def call() -> None:
            self._call("cudnnTransformTensor", *arguments)

        return call

    def place(self, array: np.ndarray[Any, Any], handle: int) -> Placed:
        """See `Library.place`."""
        try:
            return self._contexts.placed(self._devices[handle], array)
        except OSError as error:
            raise CudnnError(str(error)) from error

    def _operation(self, whole: Any, operation: Operation, tensors: Mapping[str, Any]) -> Any:
        """Draws an operation; returns its result."""
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

    def _descriptor(self, conversion: Conversion, strides: Sequence[int]) -> ctypes.c_void_p:
        made = ctypes.c_void_p()
        self._call("cudnnCreateTensorDescriptor", ctypes.byref(made))
        rank = len(conversion.dims)
        numbers = ctypes.c_int * rank
        self._call(
            "cudnnSetTensorNdDescriptor",
            made,
            ctypes.c_int(_CODES[conversion.dtype]),
            ctypes.c_int(rank),
            numbers(*conversion.dims),
            numbers(*strides),
        )
        return made

    def _call(self, function: str, *arguments: Any) -> None:
        if status := getattr(self._backend, function)(*arguments):
            self._backend.cudnnGetErrorString.restype = ctypes.c_char_p
            raise CudnnError(f"{function}: {self._backend.cudnnGetErrorString(status).decode()}")


_CODES = {DataType.FLOAT: 0, DataType.HALF: 2, DataType.BFLOAT16: 9}
"""`cudnnDataType_t`."""


_DESELECTED = (
    "every plan that the library knows multiplies float32 by tensor cores, is not deterministic, rounds its sums, or "
    "needs more workspace than is allowed"
)


def _words(error: Exception) -> str:
    """The first line of what the library says, which names the reason; the rest is a log of all it tried."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
