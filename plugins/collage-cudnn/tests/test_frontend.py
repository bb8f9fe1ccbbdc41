"""The real frontend and library, without a GPU: graphs are validated, and plans built from the properties of an H100.

Skipped where `nvidia-cudnn-frontend` or `libcudnn.so.9` is not there: the library takes hundreds of megabytes. `tox -e
cudnn` installs them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from collage.devices.this_host import this_host
from collage_core.contract import Unsupported
from collage_cuda import DeviceArray, Launch
from collage_cudnn.errors import CudnnError, NotSupportedError
from collage_cudnn.graph import DataType, Graph, Layout
from collage_cudnn.library import Conversion, Cudnn
from collage_cudnn.loading import FRONTEND, frontend_version, open_library
from collage_cudnn.parts import parts_of

from .cases import (
    BFLOAT16,
    FLOAT,
    FLOAT16,
    attention,
    batch_norm,
    convolution,
    instance_norm,
    layer_norm,
    product,
    rms_norm,
)
from .machine import TARGET, TF32, largest

H100_PROPERTIES = {
    "deviceVer": 900,
    "driverVer": 13000,
    "deviceName": "NVIDIA H100 80GB HBM3",
    "cudaDeviceId": 0,
    "multiProcessorCount": 132,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "l2CacheSize": 50 << 20,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 48 << 10,
    "maxSharedMemoryPerBlockOptin": 227 << 10,
    "reservedSharedMemoryPerBlock": 1 << 10,
    "sharedMemPerMultiprocessor": 228 << 10,
    "maxRegistersPerSM": 1 << 16,
    "regsPerBlock": 1 << 16,
    "pciDeviceId": 0,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "maxGridSize": [2**31 - 1, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
    "totalGlobalMem": 80 << 30,
}
"""As `CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR` reads them, so that plans are built where there is no device."""


class NoContexts:
    """Where no device is needed."""

    def current(self, device: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def kernel(self, device: str, name: str, code: bytes) -> Launch:
        raise OSError("there is no device")

    def placed(self, device: str, array: np.ndarray[Any, Any]) -> DeviceArray:
        raise OSError("there is no device")


@pytest.fixture(scope="module")
def library() -> Cudnn:
    if frontend_version() != FRONTEND:
        pytest.skip(f"nvidia-cudnn-frontend {FRONTEND} is not installed")
    try:
        found = open_library()
    except OSError as error:
        pytest.skip(str(error))
    return Cudnn(found._frontend, found._backend, NoContexts())


def graph_of(model: Any, layout: Layout = Layout.CHANNELS_LAST, target: Any = TARGET) -> Graph:
    parts = parts_of(largest(model, target), target, layout)
    assert not isinstance(parts, Unsupported), parts.reason
    [part] = parts
    return part.graph


GRAPHS: dict[str, Any] = {
    "convolution": lambda layout: graph_of(convolution("Relu"), layout),
    "with a residual": lambda layout: graph_of(convolution("Relu", residual=(2, 16, 4, 3)), layout),
    "relu6": lambda layout: graph_of(convolution("Relu6"), layout),
    "leaky": lambda layout: graph_of(convolution("LeakyRelu"), layout),
    "silu": lambda layout: graph_of(convolution("Silu"), layout, TF32),
    "transposed": lambda layout: graph_of(
        convolution(operator="ConvTranspose", bias="", kernel=(8, 6, 3, 3), strides=[2, 2], output_padding=[1, 0]),
        layout,
    ),
    "three axes": lambda layout: graph_of(convolution(x=(1, 4, 4, 5, 3), kernel=(6, 4, 2, 3, 1)), layout),
    "product": lambda layout: graph_of(product("Gelu", turned=True, bias=True), layout),
    "layer norm": lambda layout: graph_of(layer_norm(), layout),
    "RMS norm": lambda layout: graph_of(rms_norm(), layout),
    "instance norm": lambda layout: graph_of(instance_norm(2, 4, 3, 5), layout),
    "batch norm": lambda layout: graph_of(batch_norm(2, 4, 3, 5, activation="Relu"), layout),
}


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_frontend_takes_every_graph_and_means_what_is_described(name: str, layout: Layout, library: Cudnn) -> None:
    graph = GRAPHS[name](layout)

    drawn = json.loads(str(library.drawn(graph, handle=1)))

    tensors = {each["name"]: each for each in drawn["tensors"].values()}
    for described in graph.inputs:
        real = tensors[described.name]
        assert (real["dim"], real["stride"]) == (list(described.dims), list(described.strides))
        assert (real["data_type"], real["is_virtual"]) == (graph.dtype.name, False)
    assert len(drawn["nodes"]) == len(graph.operations)
    written = [each for each in tensors.values() if not each["is_virtual"] and not each["is_pass_by_value"]]
    [output] = [each for each in written if each["name"] not in {tensor.name for tensor in graph.inputs}]
    assert (output["dim"], output["stride"]) == (list(graph.output.dims), list(graph.output.strides))
    assert output["data_type"] == graph.dtype.name
    for described, node in zip(graph.operations, drawn["nodes"], strict=True):
        assert node["compute_data_type"] == "FLOAT"
        for field, key in (("pre_padding", "pre_padding"), ("post_padding", "post_padding"), ("stride", "stride")):
            if field in described.attributes:
                assert node[key] == described.attributes[field]


ATTENTION: dict[str, Any] = {
    "plain": {"queries": 40, "keys": 72, "size": 64},
    "one query": {"queries": 1, "keys": 72, "size": 128},
    "a mask for all rows": {"mask": "added", "queries": 64, "keys": 64, "size": 64},
    "causal, keys shared by heads": {"mask": "causal", "queries": 64, "keys": 64, "size": 64, "key_heads": 2},
    "keys with heads last": {"turned": "heads", "queries": 64, "keys": 64, "size": 32},
    "keys transposed": {"turned": "first", "queries": 64, "keys": 64, "size": 32},
}


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
@pytest.mark.parametrize("name", ATTENTION)
def test_the_frontends_rules_for_an_h100_take_every_attention(name: str, dtype: Any, library: Cudnn) -> None:
    graph = graph_of(attention(**ATTENTION[name], dtype=dtype))

    # it asks the device for its compute capability unless it is told
    drawn = json.loads(str(library.drawn(graph, handle=1, sm_version=90)))

    inputs = {each["name"]: each for each in drawn["tensors"].values() if each["name"] in ("q", "k", "v", "bias")}
    assert {name: (each["dim"], each["stride"]) for name, each in inputs.items()} == {
        each.name: (list(each.dims), list(each.strides)) for each in graph.inputs
    }


@pytest.fixture(scope="module")
def h100(library: Cudnn) -> Any:
    try:
        return library._frontend.create_device_properties(json.dumps(H100_PROPERTIES))
    except RuntimeError as error:
        pytest.skip(f"plans are not built without a device here: {error}")


def plans(library: Cudnn, graph: Graph, h100: Any, *, exact: bool = True, most: int = 3) -> Iterator[Any]:
    try:
        drawn = library.drawn(graph, device_property=h100)
        count = library.prepared(drawn, graph, exact=exact)
    except CudnnError as error:
        if "SUBLIBRARY" in str(error):
            pytest.skip(f"the library is not whole: {error}")
        raise
    for index in range(count):
        try:
            yield library.built(drawn, index)
        except CudnnError:
            continue
        most -= 1
        if not most:
            return


RESNEXT = {"x": (1, 128, 28, 28), "kernel": (128, 4, 3, 3), "group": 32, "pads": [1] * 4}


@pytest.mark.parametrize("dtype", [FLOAT, FLOAT16, BFLOAT16])
@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize(
    "case",
    [
        {"activation": "Relu", "x": (1, 3, 224, 224), "kernel": (64, 3, 7, 7), "strides": [2, 2], "pads": [3] * 4},
        {"activation": "Relu", "x": (1, 64, 56, 56), "kernel": (64, 64, 3, 3), "pads": [1] * 4},
        {"activation": "Relu", "x": (1, 64, 56, 56), "kernel": (256, 64, 1, 1), "residual": (1, 256, 56, 56)},
        {"activation": "", "x": (1, 256, 56, 56), "kernel": (512, 256, 1, 1), "strides": [2, 2]},
        {"activation": "Relu", **RESNEXT},
        {"activation": "", "bias": "", "operator": "ConvTranspose", "x": (1, 32, 14, 14), "kernel": (32, 16, 4, 4)},
    ],
)
def test_an_h100_has_compiled_kernels_for_a_resnets_chains_in_both_layouts(
    case: dict[str, Any], layout: Layout, dtype: Any, library: Cudnn, h100: Any
) -> None:
    graph = graph_of(convolution(**case, dtype=dtype), layout)

    found = list(plans(library, graph, h100))

    assert found
    assert len({each.name for each in found}) == len(found)
    assert all(len(each.data) > 100 for each in found)


def test_what_is_serialised_is_the_plan_that_was_built_last(library: Cudnn, h100: Any) -> None:
    first, second, *_ = plans(library, graph_of(convolution("Relu", dtype=FLOAT16)), h100)

    assert first.name != second.name
    assert first.data != second.data


@pytest.mark.skipif(bool(this_host().devices), reason="this machine has a GPU")
def test_without_a_device_there_is_no_handle_and_the_librarys_status_says_why(library: Cudnn) -> None:
    with pytest.raises(CudnnError, match="cudnnCreate: CUDNN_STATUS_NOT_INITIALIZED") as caught:
        library.handle("cuda:0", None)

    assert not isinstance(caught.value, NotSupportedError)


def test_what_no_graph_can_mean_is_refused_with_the_librarys_status(library: Cudnn, h100: Any) -> None:
    graph = graph_of(convolution("Relu"))
    [wide, *others] = graph.inputs
    wide = dataclasses.replace(wide, dims=(2, 9, 6, 5), strides=(270, 30, 5, 1))  # 9 channels, the filters have 8
    drawn = library.drawn(dataclasses.replace(graph, inputs=(wide, *others)), device_property=h100)

    with pytest.raises(NotSupportedError, match="CUDNN_STATUS_BAD_PARAM"):
        library.prepared(drawn, graph, exact=True)


def test_a_copy_between_layouts_is_described_to_the_library_and_needs_a_handle(library: Cudnn) -> None:
    for dims in ((2, 3, 4, 5), (2, 3, 4, 5, 6)):
        first, last = Layout.CHANNELS_FIRST.strides(dims), Layout.CHANNELS_LAST.strides(dims)
        for dtype in DataType:
            copy = library.converted(Conversion(dtype, dims, first, last), 0, 256, 512)
            with pytest.raises(CudnnError, match="cudnnTransformTensor: CUDNN_STATUS"):
                copy()
