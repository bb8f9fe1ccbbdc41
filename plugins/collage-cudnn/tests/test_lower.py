"""From a kernel function to variants, and from a variant to calls: what is asked of the library, and what is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import onnx_ir
import pytest

from collage.devices.opening import buffer_on
from collage_core.contract import Artifact, Buffer, BuildContext, Requirement, RunContext, TensorSpec, Unsupported
from collage_core.errors import KernelError
from collage_core.fusion import kernel_function
from collage_cudnn.graph import Graph
from collage_cudnn.library import MULTIPLYING
from collage_testing.kit import FakeDevice
from collage_testing.kit.contexts import MemoryBlobs, run_context
from collage_testing.kit.gpu_plugins import H100, HOST

from .cases import (
    BFLOAT16,
    FLOAT16,
    attention,
    batch_norm,
    block,
    convolution,
    instance_norm,
    layer_norm,
    rms_norm,
)
from .emulator import PLANS, VERSION, Emulator
from .machine import TARGET, TF32, largest, plugin_over, proposals


def lowered(emulator: Emulator, build: BuildContext, model: Any = None, *, regions: bool = False) -> list[Artifact]:
    function = largest(model or convolution("Relu", dtype=FLOAT16), regions=regions)
    answer = plugin_over(emulator).collage_lower(TARGET, function, build)
    assert isinstance(answer, Iterator), answer
    return list(answer)


def test_layouts_take_turns_and_each_has_the_librarys_plans_in_its_order(build: BuildContext) -> None:
    made = lowered(Emulator(), build)

    first, second = PLANS[0][0], PLANS[1][0]
    assert [each.variant for each in made] == [f"{lay}_{name}" for name in (first, second) for lay in ("nhwc", "nchw")]
    # channels-first needs no scratch memory of its own; channels-last has the image before and after
    image, result = 2 * 8 * 6 * 5 * 2, 2 * 16 * 4 * 3 * 2
    scratch = -(-image // 256) * 256 + -(-result // 256) * 256
    assert [each.workspace_bytes for each in made] == [PLANS[0][1] + scratch, PLANS[0][1], scratch, 0]
    assert made[0].requires == (
        Requirement(kind="compute_capability", name="cuda", specifier="==9.0"),
        Requirement(kind="device", name="NVIDIA H100"),
    )
    assert all(each.capturable and each.deterministic for each in made)


def test_float32_begins_with_the_layout_that_nobody_has_to_convert(build: BuildContext) -> None:
    assert lowered(Emulator(), build, convolution("Relu"))[0].variant.startswith("nchw_")


@pytest.mark.parametrize(
    ("model", "same"),
    [
        (layer_norm(), True),
        (rms_norm(), True),
        (instance_norm(2, 8, 6, 5), True),
        (batch_norm(2, 8, 6, 5, activation="relu"), True),
        (convolution("Relu"), False),
    ],
)
def test_what_is_measured_as_the_plain_target_is_asked_for_alike(
    model: onnx_ir.Model, same: bool, build: BuildContext
) -> None:
    candidate = max(proposals(model, TF32).candidates, key=lambda each: len(each.sub_graph.names))
    function = kernel_function(candidate.sub_graph, "kernel")
    made, asked = [], []
    for target in (TARGET, TF32):
        emulator = Emulator()
        answer = plugin_over(emulator).collage_lower(target, function, build)
        assert isinstance(answer, Iterator), answer
        made.append(list(answer))
        # of the precision the library is told only where something is multiplied
        asked.append([(graph, exact or not _multiplies(graph)) for graph, exact in emulator.graphs])

    assert (candidate.measured_as == dataclasses.replace(TARGET, joins=candidate.target.joins)) is same
    assert made[0] == made[1]
    assert (asked[0] == asked[1]) is same


def _multiplies(graph: Graph) -> bool:
    return not MULTIPLYING.isdisjoint(each.kind for each in graph.operations)


def test_where_layouts_are_the_same_there_is_one(build: BuildContext) -> None:
    made = lowered(Emulator(), build, layer_norm())

    assert [each.variant.partition("_")[0] for each in made] == ["nchw"] * 3


def test_workspace_is_bounded_with_what_lies_between_steps(build: BuildContext) -> None:
    made = lowered(Emulator(), dataclasses.replace(build, workspace_limit_bytes=1791))

    # channels-last alone would take 1792 bytes beside its plans; channels-first fits without a plan's workspace
    assert [each.variant for each in made] == [f"nchw_{PLANS[1][0]}"]


def test_the_chosen_variant_is_made_again_without_the_others(build: BuildContext) -> None:
    chosen = lowered(Emulator(), build)[2]
    emulator = Emulator()

    [again] = lowered(emulator, dataclasses.replace(build, variant=chosen.variant, blobs=MemoryBlobs()))

    assert again == chosen
    assert [call for call in emulator.calls if call.startswith("build")] == [f"build {PLANS[1][0]}"]


def test_the_chosen_variant_of_a_region_is_made_again_without_the_others(build: BuildContext) -> None:
    made = lowered(Emulator(), build, block(FLOAT16), regions=True)
    # four different windows: the first plan of each, then the second
    assert [each.variant.rpartition("_")[0] for each in made] == [
        f"{layout}_plans{number}.{number}.{number}.{number}" for number in (0, 1) for layout in ("nhwc", "nchw")
    ]
    emulator = Emulator()
    elsewhere = dataclasses.replace(build, variant=made[3].variant, blobs=MemoryBlobs())

    again = lowered(emulator, elsewhere, block(FLOAT16), regions=True)

    assert again == [made[3]]
    assert [call for call in emulator.calls if call.startswith("build")] == [f"build {PLANS[1][0]}"] * 4


@pytest.mark.parametrize(
    "variant",
    ["nhwc_plans0.0.0.0_00000000", "nhwc_plans0.0_00000000", "nhwc_eng10_k2=7", "plans0.0.0.0_00000000", "other"],
)
def test_a_variant_of_a_region_that_is_not_one_is_refused(variant: str, build: BuildContext) -> None:
    answer = plugin_over(Emulator()).collage_lower(
        TARGET, largest(block(FLOAT16), regions=True), dataclasses.replace(build, variant=variant)
    )

    assert answer == Unsupported(f"it makes no variant {variant!r}")


def test_a_plan_of_several_equal_groups_is_built_and_kept_once(build: BuildContext) -> None:
    [first, *_] = lowered(Emulator(), build, block(), regions=True)

    steps = [step for step in json.loads(json.dumps(dict(first.metadata)))["steps"] if "run" in step]
    assert len(steps) == 4
    assert len(first.files) == len({step["run"] for step in steps}) == 4  # four different windows


def test_graphs_that_another_candidate_had_are_not_built_again(build: BuildContext) -> None:
    emulator = Emulator()
    lowered(emulator, build, block(FLOAT16), regions=True)
    in_region = list(emulator.graphs)

    again = 0
    for candidate in proposals(block(FLOAT16)).candidates:
        emulator.graphs.clear()
        answer = plugin_over(emulator).collage_lower(TARGET, kernel_function(candidate.sub_graph, "kernel"), build)
        assert isinstance(answer, Iterator)
        assert list(answer)
        again += not emulator.graphs
        assert not [graph for graph in emulator.graphs if graph in in_region]

    assert again == 4  # the four windows, each alone


def test_weights_are_asked_for_and_not_embedded(build: BuildContext) -> None:
    function = largest(convolution("Relu", dtype=FLOAT16))

    artifact = lowered(Emulator(), build)[0]

    assert set(artifact.constants.values()) == set(function.constants.values())
    plan = json.loads(artifact.files["plan_0.bin"])
    assert plan["graph"]["inputs"][1]["strides"] == [72, 1, 24, 8]  # 16 filters of 3 by 3 over 8 channels, innermost


@pytest.mark.parametrize(("model", "reason"), [(convolution(dtype=BFLOAT16), "bfloat16"), (attention(), "attention")])
def test_a_device_that_is_too_old_is_told_before_anything_is_built(
    model: Any, reason: str, build: BuildContext
) -> None:
    turing = dataclasses.replace(H100, model="Tesla T4", compute_capability="7.5")
    emulator = Emulator()
    answer = plugin_over(emulator).collage_lower(
        TARGET, largest(model), dataclasses.replace(build, host=dataclasses.replace(HOST, devices=(turing,)))
    )

    assert isinstance(answer, Unsupported)
    assert reason in answer.reason
    assert "8.0" in answer.reason
    assert not emulator.calls


def test_what_the_library_refuses_in_every_layout_is_refused_with_its_words(build: BuildContext) -> None:
    emulator = Emulator(lambda graph, exact: "No valid engine configs for Conv_")

    answer = plugin_over(emulator).collage_lower(TARGET, largest(convolution("Relu")), build)

    assert answer == Unsupported("nchw: No valid engine configs for Conv_; nhwc: No valid engine configs for Conv_")


def test_what_the_library_refuses_in_one_layout_is_made_in_the_other(build: BuildContext) -> None:
    def only_last(graph: Any, exact: bool) -> str | None:
        return None if graph.inputs[0].strides[1] == 1 else "NOT_SUPPORTED_LAYOUT"

    made = lowered(Emulator(only_last), build, convolution("Relu"))

    assert {each.variant.partition("_")[0] for each in made} == {"nhwc"}


def test_only_the_plain_target_is_exact(build: BuildContext) -> None:
    emulator = Emulator()

    lowered(emulator, build, convolution("Relu"))

    assert {exact for _, exact in emulator.graphs} == {True}


class Loaded:
    """A variant loaded on a fake device, with places for its function's values."""

    def __init__(self, artifact: Artifact, function: Any, emulator: Emulator) -> None:
        self.device = FakeDevice("cuda:0")
        self.stream = self.device.open("cuda:0")
        self.run = run_context(artifact, function, TARGET, self.stream)
        self.answer = plugin_over(emulator).collage_load(TARGET, artifact, self.run)
        self.inputs = [buffer_on(self.stream, spec) for spec in function.inputs]
        self.outputs = [buffer_on(self.stream, spec) for spec in function.outputs]
        self.workspace = self.scratch(artifact.workspace_bytes)

    def scratch(self, nbytes: int) -> Buffer | None:
        spec = TensorSpec(name="workspace", dtype=FLOAT16, shape=(nbytes // 2,))
        return buffer_on(self.stream, spec) if nbytes else None


def loaded(build: BuildContext, emulator: Emulator, number: int = 0, **changes: Any) -> Loaded:
    artifact = dataclasses.replace(lowered(emulator, build)[number], **changes)
    emulator.calls.clear()
    return Loaded(artifact, largest(convolution("Relu", dtype=FLOAT16)), emulator)


def test_weights_in_another_layout_are_made_once_when_loaded(build: BuildContext) -> None:
    emulator = Emulator()
    kernel = loaded(build, emulator)
    assert not isinstance(kernel.answer, Unsupported)

    calls = [kernel.answer.bind(kernel.inputs, kernel.outputs, kernel.workspace) for _ in range(2)]
    for call in (*calls, *calls):
        call()

    # 16 by 8 by 3 by 3 halves; the bias lies alike in all layouts
    assert [call for call in emulator.calls if call.startswith("place")] == [f"place {16 * 8 * 9 * 2}"]
    assert emulator.calls.count("convert") == 2 * emulator.calls.count("execute") == 2 * 4


def test_channels_first_converts_nothing(build: BuildContext) -> None:
    emulator = Emulator()
    kernel = loaded(build, emulator, 1)
    assert not isinstance(kernel.answer, Unsupported)

    kernel.answer.bind(kernel.inputs, kernel.outputs, kernel.workspace)()

    assert emulator.calls[1:] == ["execute"]  # after the handle


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": {"version": 91000}}, f"its plans are of cuDNN 91000, this is {VERSION}"),
        ({"constants": {"w": "missing"}}, "the constant 'missing' was not supplied"),
    ],
)
def test_what_cannot_be_loaded_is_refused(changes: Any, reason: str, build: BuildContext) -> None:
    artifact = lowered(Emulator(), build)[0]
    wrong = dataclasses.replace(artifact, **changes)
    run = RunContext(threads=1, host=HOST, device="cuda:0", stream=FakeDevice("cuda:0").open("cuda:0").handle)

    answer = plugin_over(Emulator()).collage_load(TARGET, wrong, run)

    assert isinstance(answer, Unsupported)
    assert answer.reason == reason


def test_a_kernel_without_a_stream_is_refused(build: BuildContext) -> None:
    artifact = lowered(Emulator(), build)[0]

    answer = plugin_over(Emulator()).collage_load(TARGET, artifact, RunContext(threads=1, host=HOST, device="cuda:0"))

    assert answer == Unsupported("it enqueues on a stream, and none was given")


def test_a_workspace_that_is_missing_is_an_error(build: BuildContext) -> None:
    kernel = loaded(build, Emulator())
    assert not isinstance(kernel.answer, Unsupported)

    with pytest.raises(KernelError, match=r"its steps need \d+ bytes of workspace"):
        kernel.answer.bind(kernel.inputs, kernel.outputs, None)


def test_a_place_that_is_not_aligned_is_an_error(build: BuildContext) -> None:
    kernel = loaded(build, Emulator())
    assert not isinstance(kernel.answer, Unsupported)
    [x] = kernel.inputs
    beside = Buffer.at(x.spec, device="cuda:0", pointer=x.pointer + 2, keeps=x)

    with pytest.raises(KernelError, match=r"'x' is at 0x.*; plans are made for places at multiples of 256"):
        kernel.answer.bind([beside], kernel.outputs, kernel.workspace)


def test_each_stream_has_a_handle_of_its_own(build: BuildContext) -> None:
    emulator = Emulator()
    plugin = plugin_over(emulator)
    artifact = lowered(emulator, build)[0]
    function = largest(convolution("Relu", dtype=FLOAT16))
    emulator.calls.clear()
    device = FakeDevice("cuda:0")
    for stream in (device.open("cuda:0"), device.open("cuda:0")):
        run = run_context(artifact, function, TARGET, stream)
        for _ in range(2):
            assert not isinstance(plugin.collage_load(TARGET, artifact, run), Unsupported)

    assert sum(call.startswith("handle") for call in emulator.calls) == 2
    # a stream may be at the address of one that is gone, whatever a handle remembers of that
    assert [call.partition(" ")[0] for call in emulator.calls if "handle" in call or "put" in call] == [
        "handle",
        "put",
        "handle",
        "put",
    ]
