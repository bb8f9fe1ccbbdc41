"""The frontend and the library as objects that note what is asked of them, and fail where a test wants it."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from collage_cuda import DeviceArray, Launch
from collage_cudnn.library import Cudnn

STATUSES = {
    1001: "CUDNN_STATUS_NOT_INITIALIZED",
    2000: "CUDNN_STATUS_BAD_PARAM",
    3004: "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT",
    4003: "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    4004: "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    5001: "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER",
}
"""What `cudnnGetErrorString` of 9.20.0 gives."""


class GraphNotSupported(Exception):  # noqa: N818  in the frontend's place
    """`cudnnGraphNotSupportedError`."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """One that the heuristics know, and what building it raises."""

    name: str
    problem: Exception | None = None
    workspace_bytes: int = 0


class Names:
    """An enumeration of which every member exists and is its name."""

    def __getattr__(self, name: str) -> str:
        return name


class Tensor:
    """Takes every `set_`."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        return lambda *_: self


class Graph:
    """A `pygraph`: what is not written out below is noted and gives a tensor."""

    def __init__(self, frontend: Frontend) -> None:
        self._frontend = frontend
        self._built = ""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_, **__: self._note(name)

    def get_execution_plan_count(self) -> int:
        return len(self._frontend.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self._frontend.plans[index].name

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._frontend.plans[index].workspace_bytes

    def build_plan_at_index(self, index: int) -> None:
        plan = self._frontend.plans[index]
        self._note(f"build {plan.name}")
        if plan.problem is not None:
            raise plan.problem
        self._built = plan.name

    def serialize(self) -> bytes:
        return self._built.encode()

    def _note(self, name: str) -> Tensor:
        self._frontend.calls.append(name)
        if name in self._frontend.fails:
            raise self._frontend.fails[name]
        return Tensor()


class Frontend:
    """The module `cudnn`.

    Args:
        plans: What the heuristics know, of any graph.
        fails: What calls of a graph raise, by name.
        version: What `backend_version` gives.
    """

    data_type = numerical_note = heur_mode = norm_forward_phase = scalar_type = diagonal_alignment = Names()
    cudnnGraphNotSupportedError = GraphNotSupported  # noqa: N815  the frontend's name

    def __init__(self, *plans: Plan, fails: Mapping[str, Exception] | None = None, version: int = 92000) -> None:
        self.plans = plans
        self.version = version
        self.fails = dict(fails or {})
        self.calls: list[str] = []

    def backend_version(self) -> int:
        return self.version

    def pygraph(self, **settings: Any) -> Graph:
        return Graph(self)

    @property
    def built(self) -> list[str]:
        """Names of plans, in the order in which they were built."""
        return [call.removeprefix("build ") for call in self.calls if call.startswith("build ")]


class Backend:
    """The library, of which the few functions that are called by ctypes exist.

    Args:
        fails: Status of a function by name, from its given call on; the first one is call 0.

    Attributes:
        alive: Descriptors that were created and not destroyed.
        created: How many descriptors were created.
    """

    def __init__(self, fails: Mapping[str, tuple[int, int]] | None = None) -> None:
        self._fails = dict(fails or {})
        self._calls: dict[str, int] = {}
        self._numbers = itertools.count(1)
        self.alive: set[int] = set()
        self.created = 0
        self.cudnnGetErrorString = lambda status: STATUSES[status].encode()

    def __getattr__(self, name: str) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            number = self._calls.get(name, 0)
            self._calls[name] = number + 1
            first, status = self._fails.get(name, (0, 0))
            if status and number >= first:
                return status
            self._done(name, arguments)
            return 0

        return call

    def _done(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name in ("cudnnCreate", "cudnnCreateTensorDescriptor"):
            arguments[0]._obj.value = next(self._numbers)  # what `ctypes.byref` refers to
        if name == "cudnnCreateTensorDescriptor":
            self.alive.add(arguments[0]._obj.value)
            self.created += 1
        if name == "cudnnDestroyTensorDescriptor":
            assert isinstance(arguments[0], ctypes.c_void_p)
            self.alive.remove(arguments[0].value or 0)  # a KeyError if it is destroyed twice
        if name == "cudnnTransformTensor":
            assert {arguments[2].value, arguments[5].value} <= self.alive


class Contexts:
    """Devices without a driver.

    Args:
        fails: What making a device current raises.
    """

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails

    @contextlib.contextmanager
    def current(self, device: str) -> Iterator[None]:
        if self.fails is not None:
            raise self.fails
        yield

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        raise NotImplementedError

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        with self.current(device):
            return DeviceArray(256)


def library(
    *plans: Plan,
    fails: Mapping[str, Exception] | None = None,
    statuses: Mapping[str, tuple[int, int]] | None = None,
    contexts: Contexts | None = None,
    version: int = 92000,
) -> tuple[Cudnn, Frontend, Backend]:
    """`Cudnn` over recording objects, and these."""
    frontend, backend = Frontend(*plans, fails=fails, version=version), Backend(statuses)
    return Cudnn(frontend, backend, contexts or Contexts()), frontend, backend
