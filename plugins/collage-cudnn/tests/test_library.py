"""What is asked of the frontend and of the library, and what becomes of their complaints."""

from __future__ import annotations

import dataclasses
import functools
import gc
from typing import Any

import numpy as np
import pytest

from collage_core.contract import BlobCache, Device, Unsupported
from collage_core.errors import (
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DriverTooOldError,
    KernelError,
    LoweringError,
)
from collage_cudnn.errors import CudnnError, NotSupportedError, cudnn_error
from collage_cudnn.graph import DataType, Graph, Layout
from collage_cudnn.kept_plans import KeptPlans
from collage_cudnn.library import Conversion, Cudnn, Found
from collage_cudnn.parts import parts_of
from collage_testing.kit.contexts import MemoryBlobs
from collage_testing.kit.gpu_plugins import H100

from .cases import convolution
from .machine import TARGET, largest
from .recording import Contexts, GraphNotSupported, Plan, library

UNFINISHED = "CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: cudnnFinalize Descriptor Failed cudnn_status: CUDNN_STATUS_"
BROKEN = GraphNotSupported(f"{UNFINISHED}EXECUTION_FAILED")
UNSUPPORTED = GraphNotSupported(f"{UNFINISHED}NOT_SUPPORTED_SHAPE")
NO_MEMORY = GraphNotSupported(f"{UNFINISHED}INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED")
LEFT_OUT = GraphNotSupported("Deselecting execution plan")

LOG = """No valid engine configs for Conv_
{"engineId":9,"smVersion":900}
Warning: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH; Reason: only supported since Blackwell architecture
Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: (CUDNN_STATUS_NOT_INITIALIZED == status) || (status / 1000)
Warning: CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE; Reason: an engine that this installation has not"""
"""Of one engine after the other, as 9.20.0 writes it."""


@pytest.mark.parametrize(
    ("text", "refused", "kind"),
    [
        # seen with frontend 1.26.0 and cuDNN 9.20.0
        (str(BROKEN), True, CudnnError),
        (str(LEFT_OUT), True, NotSupportedError),
        (LOG, True, NotSupportedError),
        ("detail::finalize(x) failed with message: stride, and code: CUDNN_STATUS_BAD_PARAM", False, NotSupportedError),
        ("cudnnHandle Create failed cudaGetDeviceCount(&count) != cudaSuccess", False, CudnnError),
        ("cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED", False, CudnnError),
        # the names of cudnn_graph.h, in the same places
        (f"{UNFINISHED}NOT_SUPPORTED_LAYOUT", False, NotSupportedError),
        (f"{UNFINISHED}INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED", True, DeviceMemoryError),
        (f"{UNFINISHED}INTERNAL_ERROR_HOST_ALLOCATION_FAILED", True, DeviceMemoryError),
        (f"{UNFINISHED}ALLOC_FAILED", False, DeviceMemoryError),
        (f"{LOG}\nError: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED; Reason: x", True, DeviceMemoryError),
        (f"{LOG}\nError: CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER; Reason: x", True, CudnnError),
        (f"{UNFINISHED}INTERNAL_ERROR_COMPILATION_FAILED", True, CudnnError),
        # seen without NVRTC
        (f"{LOG}\nWarning: CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING; Reason: x", True, CudnnError),
        (f"{UNFINISHED}NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", True, DriverTooOldError),
        (f"{UNFINISHED}NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE", True, CudnnError),
        ("", False, CudnnError),
    ],
)
def test_only_what_the_graph_itself_cannot_do_is_not_supported(text: str, refused: bool, kind: type) -> None:
    error = cudnn_error("cuda:0", text, refused=refused)

    assert type(error) is kind
    assert (text.splitlines() or ["gave no reason"])[0].rstrip(".") in str(error)


@functools.cache
def graph() -> Graph:
    parts = parts_of(largest(convolution("Relu")), TARGET, Layout.CHANNELS_FIRST)
    assert not isinstance(parts, Unsupported)
    return parts[0].graph


def plans(
    cudnn: Cudnn,
    only: str | int | None = None,
    *,
    exact: bool = True,
    limit: int = 100,
    device: Device = H100,
    blobs: BlobCache | None = None,
) -> list[Found]:
    handle = functools.partial(cudnn.handle, "cuda:0", None)
    kept = KeptPlans(cudnn, handle, device, MemoryBlobs() if blobs is None else blobs, graph(), exact=exact)
    return list(kept.plans(workspace_limit_bytes=limit, only=only))


def test_plans_keep_the_librarys_order_and_what_cannot_be_built_is_passed_over() -> None:
    cudnn, *_ = library(
        Plan("a", UNSUPPORTED),
        Plan("b"),
        Plan("c", BROKEN),
        Plan("d", workspace_bytes=101),
        Plan("e", LEFT_OUT),
        Plan("f"),
    )

    assert plans(cudnn) == [Found("b", 1, 0, b"b"), Found("f", 5, 0, b"f")]


def test_a_plan_that_both_heuristics_know_is_one_plan() -> None:
    cudnn, frontend, _ = library(Plan("a"), Plan("b", UNSUPPORTED), Plan("a"), Plan("b", UNSUPPORTED), Plan("c"))

    assert [(each.name, each.position) for each in plans(cudnn)] == [("a", 0), ("c", 4)]
    assert frontend.built == ["a", "b", "c"]
    assert [each.position for each in plans(cudnn, "a")] == [0]


@pytest.mark.parametrize(("only", "name"), [("c", "c"), (1, "b"), (0, "a")])
def test_the_only_one_that_is_wanted_is_the_only_one_that_is_built(only: str | int, name: str) -> None:
    cudnn, frontend, _ = library(Plan("a"), Plan("b"), Plan("c"))

    assert [each.name for each in plans(cudnn, only)] == [name]
    assert frontend.built == [name]


@pytest.mark.parametrize(
    ("problems", "kind", "words"),
    [
        ((), NotSupportedError, "the library's heuristics know no plan"),
        ((UNSUPPORTED, LEFT_OUT), NotSupportedError, "every plan that the library knows multiplies float32"),
        ((UNSUPPORTED, BROKEN, LEFT_OUT), CudnnError, "CUDNN_STATUS_EXECUTION_FAILED"),
    ],
)
def test_a_graph_without_a_plan_is_refused_unless_one_failed_for_another_reason(
    problems: tuple[Exception, ...], kind: type[Exception], words: str
) -> None:
    cudnn, *_ = library(*(Plan(f"plan{number}", problem) for number, problem in enumerate(problems)))

    with pytest.raises(kind, match=words) as caught:
        plans(cudnn)

    assert caught.type is kind


def test_what_was_built_is_kept_and_not_asked_for_again() -> None:
    blobs = MemoryBlobs()
    cudnn, frontend, _ = library(Plan("a"), Plan("b", UNSUPPORTED), Plan("a"), Plan("c", workspace_bytes=7))
    fresh = plans(cudnn, blobs=blobs)
    frontend.calls.clear()

    kept = plans(cudnn, blobs=blobs)

    assert kept == fresh == [Found("a", 0, 0, b"a"), Found("c", 3, 7, b"c")]
    assert frontend.built == ["b"]  # what could not be built, perhaps because something was missing
    frontend.calls.clear()
    assert plans(cudnn, "c", blobs=blobs) == plans(cudnn, 3, blobs=blobs) == fresh[1:]
    assert not frontend.calls


def test_what_was_kept_is_another_graphs_devices_precisions_or_versions_alone() -> None:
    blobs = MemoryBlobs()
    cudnn, frontend, _ = library(Plan("a"))
    usual = plans(cudnn, blobs=blobs)
    others: list[dict[str, Any]] = [{"device": dataclasses.replace(H100, model="NVIDIA H200")}, {"exact": False}]

    for asked in others:
        frontend.calls.clear()
        assert plans(cudnn, blobs=blobs, **asked) == usual
        assert frontend.built == ["a"]
    newer, frontend, _ = library(Plan("a"), version=frontend.version + 1)
    assert plans(newer, blobs=blobs) == usual
    assert frontend.built == ["a"]


def test_the_workspace_that_is_allowed_changes_nothing_of_what_is_kept() -> None:
    blobs = MemoryBlobs()
    cudnn, frontend, _ = library(Plan("a", workspace_bytes=8), Plan("b", workspace_bytes=4))

    with pytest.raises(NotSupportedError, match="b needs 4 bytes of workspace; 3 are allowed"):
        plans(cudnn, limit=3, blobs=blobs)
    assert [each.name for each in plans(cudnn, limit=4, blobs=blobs)] == ["b"]
    assert [each.name for each in plans(cudnn, limit=8, blobs=blobs)] == ["a", "b"]

    assert frontend.built == ["a", "b"]


def test_too_little_memory_ends_the_building_at_once() -> None:
    cudnn, frontend, _ = library(Plan("a", NO_MEMORY), Plan("b"))

    with pytest.raises(DeviceMemoryError, match=r"device cuda:0: .*DEVICE_ALLOCATION_FAILED"):
        plans(cudnn)

    assert frontend.built == ["a"]


@pytest.mark.parametrize("call", ["conv_fprop", "validate", "build_operation_graph", "create_execution_plans"])
def test_every_step_before_the_plans_tells_the_graph_from_the_device(call: str) -> None:
    for problem, kind in (
        (GraphNotSupported("the frontend has no such convolution"), NotSupportedError),
        (RuntimeError("something else"), CudnnError),
        (ValueError("Tensor 'x' dims not set."), CudnnError),
        (RuntimeError(f"{UNFINISHED}ALLOC_FAILED"), DeviceMemoryError),
    ):
        cudnn, *_ = library(Plan("a"), fails={call: problem})
        with pytest.raises(kind) as caught:
            plans(cudnn)
        assert caught.type is kind
        assert caught.value.__cause__ is problem


@pytest.mark.parametrize(
    ("function", "status", "kind"),
    [
        ("cudnnCreate", 4003, DeviceMemoryError),
        ("cudnnCreate", 1001, CudnnError),
        ("cudnnSetStream", 5001, CudnnError),
    ],
)
def test_a_handle_that_cannot_be_made_is_no_refusal(function: str, status: int, kind: type[Exception]) -> None:
    cudnn, *_ = library(statuses={function: (0, status)})

    with pytest.raises(kind, match=f"{function}: CUDNN_STATUS_") as caught:
        cudnn.handle("cuda:0", 1)

    assert caught.type is kind


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (DeviceLostError("cuda:0", "gone"), DeviceLostError),
        (DeviceMemoryError("cuda:0", "full"), DeviceMemoryError),
        (OSError("libcuda.so.1"), CudnnError),
    ],
)
def test_what_the_driver_says_of_a_device_is_kept(problem: Exception, kind: type[Exception]) -> None:
    contexts = Contexts()
    cudnn, *_ = library(Plan("a"), contexts=contexts)
    handle = cudnn.handle("cuda:0", 1)
    contexts.fails = problem

    for use in (
        lambda: cudnn.offer(graph(), handle, exact=True),
        lambda: cudnn.executed(b"a", handle, {}, 0),
        lambda: cudnn.place(np.zeros(4), handle),
        lambda: cudnn.handle("cuda:0", 2),
    ):
        with pytest.raises(kind) as caught:
            use()
        assert caught.type is kind


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (RuntimeError("detail::execute() failed, and code: CUDNN_STATUS_EXECUTION_FAILED_CUDART"), CudnnError),
        (BROKEN, CudnnError),
        (NO_MEMORY, DeviceMemoryError),
    ],
)
def test_a_call_that_fails_says_so_in_an_error_of_a_kernel(problem: Exception, kind: type[Exception]) -> None:
    cudnn, *_ = library(fails={"execute": problem})
    call = cudnn.executed(b"a", cudnn.handle("cuda:0", 1), {1: 256}, 0)

    with pytest.raises(kind) as caught:
        call()

    assert isinstance(caught.value, DeviceError | KernelError)
    assert isinstance(caught.value, DeviceError | LoweringError)  # in a worker the same may happen when it is lowered


CONVERSION = Conversion(DataType.HALF, (2, 3, 4, 5), (60, 20, 5, 1), (60, 1, 15, 3))


def test_a_conversions_descriptors_live_as_long_as_its_call() -> None:
    cudnn, _, backend = library()
    handle = cudnn.handle("cuda:0", 1)
    calls: list[Any] = [cudnn.converted(CONVERSION, handle, 256, 512) for _ in range(3)]
    for call in (*calls, *calls):
        call()
    assert len(backend.alive) == backend.created == 6

    del calls[1:], call
    gc.collect()
    assert len(backend.alive) == 2
    calls[0]()

    calls.clear()
    gc.collect()
    assert not backend.alive


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("function", ["cudnnCreateTensorDescriptor", "cudnnSetTensorNdDescriptor"])
def test_a_conversion_that_cannot_be_described_leaves_no_descriptor_behind(function: str, failing: int) -> None:
    cudnn, _, backend = library(statuses={function: (failing, 2000)})

    with pytest.raises(CudnnError, match=f"{function}: CUDNN_STATUS_BAD_PARAM"):
        cudnn.converted(CONVERSION, cudnn.handle("cuda:0", 1), 256, 512)

    assert backend.created == failing + (function == "cudnnSetTensorNdDescriptor")
    assert not backend.alive


def test_a_conversion_that_fails_says_so() -> None:
    cudnn, *_ = library(statuses={"cudnnTransformTensor": (0, 5001)})
    call = cudnn.converted(CONVERSION, cudnn.handle("cuda:0", 1), 256, 512)

    with pytest.raises(CudnnError, match="cudnnTransformTensor: CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"):
        call()
