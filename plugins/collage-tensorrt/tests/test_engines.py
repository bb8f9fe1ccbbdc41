"""Building: what the builder is told, which variants there are, what is remembered, what an artifact needs."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx_ir
import pytest

from collage.runtime.kernels.requirements import check_requirements
from collage_core.contract import BuildContext, KernelFunction, Requirement, TensorSpec, Unsupported, ValueKind
from collage_core.errors import DeviceUnavailableError, LoweringError
from collage_tensorrt.editions import RTX, TENSORRT
from collage_tensorrt.lower import ENGINE
from collage_tensorrt.plugin import TensorRtPlugin
from collage_testing import GraphBuilder
from collage_testing.kit.contexts import MemoryBlobs

from .emulated import Library
from .machine import (
    EDITIONS,
    H200,
    HOST,
    RTX_4090,
    build_context,
    emulated,
    fake,
    lowered,
    plugin_over,
    regions,
    target,
    whole,
)

D = onnx_ir.DataType


def test_regions_are_built_for_a_device_that_is_not_there(library: Any, build: BuildContext) -> None:
    made = {name: lowered(plugin_over(library), function, build) for name, function in regions().items()}

    engines = [artifact.files[ENGINE] for [artifact] in made.values()]
    assert len(set(engines)) == 3
    assert all(len(engine) > 32 for engine in engines)
    assert {name: artifact.metadata["outputs"] for name, [artifact] in made.items()} == {
        "convolution": ["relu_0"],
        "pooling": ["maxpool_0"],
        "product": ["add_2"],
    }


@pytest.mark.parametrize("name", EDITIONS)
def test_the_builder_is_told_level_workspace_and_that_float32_is_float32(name: str, build: BuildContext) -> None:
    edition = EDITIONS[name]
    library = emulated(edition, fake()[0])
    plugin = plugin_over(library, edition)
    function = regions()["product"]

    for effort in range(3):
        lowered(plugin, function, dataclasses.replace(build, effort=effort), target(edition))
    for precision in ("fp16", "bf16", "int8", "int8+fp16", "tf32"):
        lowered(plugin, function, build, target(edition, precision))

    assert [each["level"] for each in library.builds] == [2, 3, 3, 5, 3, 3, 3, 3, 3]
    assert {each["workspace_bytes"] for each in library.builds} == {build.workspace_limit_bytes}
    assert {each["capability"] for each in library.builds} == {"SM89"}
    assert {each["profile"] for each in map(_hashable, library.builds)} == {"{}"}
    own = {"REQUIRE_USER_ALLOCATION"} if edition is RTX else set()
    assert [set(each["flags"]) - own for each in library.builds] == [set()] * 8 + [{"TF32"}]
    assert all(own <= set(each["flags"]) for each in library.builds)


def _hashable(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "profile": json.dumps(settings["profile"])}


def test_a_variant_is_found_again_by_its_name_alone(build: BuildContext) -> None:
    library = Library()
    plugin, function = plugin_over(library), regions()["product"]

    both = lowered(plugin, function, dataclasses.replace(build, effort=2))
    [again] = lowered(plugin, function, dataclasses.replace(build, effort=0, variant="level5"))
    unknown = plugin.collage_lower(target(), function, dataclasses.replace(build, variant="level9"))

    assert [each.variant for each in both] == ["level3", "level5"]
    assert again == both[1]
    assert isinstance(unknown, Unsupported)


def test_a_second_variant_is_built_when_it_is_asked_for(build: BuildContext) -> None:
    library = Library()
    answer = plugin_over(library).collage_lower(target(), regions()["product"], dataclasses.replace(build, effort=2))

    assert isinstance(answer, Iterator)
    [first] = itertools.islice(answer, 1)
    assert (first.variant, len(library.builds)) == ("level3", 1)


def test_equal_functions_give_equal_bytes(library: Any, build: BuildContext) -> None:
    """So what was measured and what is built again for the package are the same engine."""
    first, second = (lowered(plugin_over(library), regions()["convolution"], build) for _ in range(2))

    assert first == second


def test_weights_are_inside(library: Any, build: BuildContext) -> None:
    made = []
    for seed in (0, 1):
        g = GraphBuilder(seed=seed)
        model = g.model(g.op("MatMul", g.input("x", 4, 16), g.weight("w", 16, 8)))
        made.append(lowered(plugin_over(library), whole(model), build)[0])

    assert made[0].files != made[1].files
    assert made[0].constants == {}


def test_what_the_builder_refuses_is_a_refusal_and_a_later_level_that_fails_an_error(build: BuildContext) -> None:
    library = Library(refuses="Error Code 10: Could not find any implementation for node conv_0.")
    refused = plugin_over(library).collage_lower(target(), regions()["convolution"], build)

    assert isinstance(refused, Unsupported)
    assert refused.reason == library.refuses

    library.refuses = ""
    answer = plugin_over(library).collage_lower(
        target(), regions()["convolution"], dataclasses.replace(build, effort=2)
    )
    assert isinstance(answer, Iterator)
    next(answer)
    library.refuses = "it takes too long"
    with pytest.raises(LoweringError, match=r"tensorrt_rtx@cuda:0 .* none at level 5: it takes too long"):
        next(answer)


def test_what_cannot_be_lowered_says_why(build: BuildContext) -> None:
    plugin = plugin_over(Library())
    function = regions()["product"]
    elsewhere = dataclasses.replace(build, host=dataclasses.replace(HOST, devices=(H200,)))
    nowhere = dataclasses.replace(build, host=dataclasses.replace(HOST, devices=()))
    open_shape = TensorSpec(name="x", kind=ValueKind.FOREIGN, dtype=D.FLOAT, shape=(None, 4))
    unknown = dataclasses.replace(function, inputs=(open_shape,))

    answers = [
        plugin.collage_lower(target(), function, elsewhere),
        plugin.collage_lower(target(), function, nowhere),
        plugin.collage_lower(target(), unknown, build),
    ]

    assert [each.reason for each in answers if isinstance(each, Unsupported)] == [
        "it does not build for compute capability 9.0",
        "the machine has no cuda:0",
        "the shape of 'x' is not known before it runs",
    ]


# Shapes: prepared models leave none open. Where a function's own model does, what it is bound to is the profile.


def loosely_declared() -> KernelFunction:
    g = GraphBuilder()
    x = g.input("x", "batch", 16)
    function = whole(g.model(g.op("Relu", g.op("MatMul", x, g.weight("w", 16, 8)))))
    bound = TensorSpec(name="x", dtype=D.FLOAT, shape=(4, 16)), TensorSpec(name="relu_0", dtype=D.FLOAT, shape=(4, 8))
    return dataclasses.replace(function, inputs=bound[:1], outputs=bound[1:])


def test_a_size_the_model_leaves_open_is_built_for_the_shape_the_kernel_is_bound_to(
    library: Any, build: BuildContext
) -> None:
    """Without a profile the library refuses: "Network has dynamic or shape inputs"."""
    [artifact] = lowered(plugin_over(library), loosely_declared(), build)

    assert len(artifact.files[ENGINE]) > 32
    if isinstance(library, Library):
        assert library.builds[0]["profile"] == {"x": [[4, 16]] * 3}


# What TensorRT remembers of kernels it has tried


def test_kernels_are_tried_once_and_remembered_for_device_and_driver(tmp_path: Path) -> None:
    blobs = MemoryBlobs()
    library = emulated(TENSORRT, fake()[0])
    plugin = plugin_over(library, TENSORRT)
    build = build_context(tmp_path, blobs=blobs)

    lowered(plugin, regions()["convolution"], build, target(TENSORRT))
    tried = list(library.tried)
    lowered(plugin, regions()["convolution"], build, target(TENSORRT))
    newer = dataclasses.replace(HOST, devices=(dataclasses.replace(RTX_4090, driver="590.10"),))
    again = len(library.tried)
    lowered(plugin, regions()["convolution"], dataclasses.replace(build, host=newer), target(TENSORRT))

    assert len(tried) == again == 3
    assert library.tried[again:] == tried
    assert sorted(blobs._blobs) == [f"timings/NVIDIA RTX 4090/8.9/{driver}" for driver in ("580.65.06", "590.10")]


def test_what_another_process_found_out_meanwhile_is_kept(tmp_path: Path) -> None:
    key = f"timings/{RTX_4090.fingerprint}"

    class Busy(MemoryBlobs):
        """Somebody else puts a timing after this process has read them."""

        def get(self, key: str) -> bytes | None:
            found = super().get(key)
            super().put(key, b'["Theirs"]')
            return found

    blobs = Busy()
    library = emulated(TENSORRT, fake()[0])
    lowered(
        plugin_over(library, TENSORRT), regions()["pooling"], build_context(tmp_path, blobs=blobs), target(TENSORRT)
    )

    known = json.loads(blobs._blobs[key])
    assert "Theirs" in known
    assert any(each.startswith("MaxPool") for each in known)


def test_timings_that_cannot_be_read_are_replaced(tmp_path: Path) -> None:
    blobs, key = MemoryBlobs(), f"timings/{RTX_4090.fingerprint}"
    blobs.put(key, b"damaged")
    library = emulated(TENSORRT, fake()[0])
    build = build_context(tmp_path, blobs=blobs)

    for _ in range(2):
        lowered(plugin_over(library, TENSORRT), regions()["pooling"], build, target(TENSORRT))

    assert len(library.tried) == len(json.loads(blobs._blobs[key])) == 1


def test_rtx_keeps_no_timings(library: Any, build: BuildContext) -> None:
    lowered(plugin_over(library), regions()["pooling"], build)

    assert isinstance(build.blobs, MemoryBlobs)
    assert build.blobs._blobs == {}


# Devices


def test_kernels_are_tried_on_the_targets_own_device(build: BuildContext) -> None:
    made: list[str] = []
    library = emulated(TENSORRT, fake()[0])
    second = dataclasses.replace(RTX_4090, name="cuda:1")
    host = dataclasses.replace(HOST, devices=(RTX_4090, second))
    on = dataclasses.replace(target(TENSORRT), device="cuda:1")

    lowered(
        TensorRtPlugin(TENSORRT, lambda: library, made.append),
        regions()["pooling"],
        dataclasses.replace(build, host=host),
        on,
    )

    assert made == ["cuda:1"]


def test_a_device_that_cannot_be_used_keeps_its_kind_of_error(build: BuildContext) -> None:
    def gone(name: str) -> None:
        raise DeviceUnavailableError(name, "CuPy is not installed")

    plugin = TensorRtPlugin(TENSORRT, lambda: emulated(TENSORRT, fake()[0]), gone)

    with pytest.raises(DeviceUnavailableError, match="CuPy is not installed"):
        plugin.collage_lower(target(TENSORRT), regions()["pooling"], build)


@pytest.mark.parametrize("name", EDITIONS)
def test_an_artifact_needs_the_device_it_was_built_for(name: str, build: BuildContext) -> None:
    edition = EDITIONS[name]
    [artifact] = lowered(
        plugin_over(emulated(edition, fake()[0]), edition), regions()["pooling"], build, target(edition)
    )
    like = dataclasses.replace(RTX_4090, model="NVIDIA L4")
    other = dataclasses.replace(RTX_4090, compute_capability="12.0")

    def met(device: Any) -> Any:
        return check_requirements(artifact.requires, dataclasses.replace(HOST, devices=(device,)), device="cuda:0")

    assert met(RTX_4090)
    assert met(other).reason == "it needs compute capability ==8.9, NVIDIA RTX 4090 has 12.0"
    # one was made by trying kernels on that very model
    assert bool(met(like)) is (edition is RTX)


def test_the_drivers_branch_is_required_where_the_edition_says_which_cuda_it_is(rtx: Any, build: BuildContext) -> None:
    [artifact] = lowered(plugin_over(rtx), regions()["pooling"], build)

    assert Requirement(kind="driver", name="cuda", specifier=">=580") in artifact.requires


# `capturable` is what the artifact says; that it is so is tried in test_running.


def test_calls_may_be_captured_and_give_the_same_bits(library: Any, build: BuildContext) -> None:
    [artifact] = lowered(plugin_over(library), regions()["pooling"], build)

    assert artifact.capturable
    assert artifact.deterministic
