"""Real models: every node is claimed, or refused in the importer's words; regions become engines that last."""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir
import pytest

from benchmarks.models import MODELS
from collage.prepare.steps import prepare
from collage.runtime.package import load_package, save_package
from collage_core.candidates.proposals import Proposals
from collage_core.contract import Artifact, BuildContext
from collage_core.fusion import kernel_function
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.graph.masks import iterate_bits
from collage_core.passes.call_sites import call_sites
from collage_tensorrt.lower import ENGINE
from tests.engine.runtime.fakes import split
from tests.exports.blocks import CONFIGURATIONS, blocks
from tests.exports.reading import read
from tests.resnext import DEPTHS, resnext

from .machine import lowered, plugin_over, proposals, target

TRANSFORMERS = ("bert", "vit", "gpt2", "llama", "whisper_encoder", "whisper_decoder")
FIVE = ("bert", "vit", "gpt2", "llama", "convnext")
MANY = 8
"""Nodes of a region that is built of each."""

DATA = "the shape of 'nonmaxsuppression_0' depends on data"
SUITE: Mapping[str, Mapping[str, str]] = {"mnist": {}, "squeezenet": {}, "ssd_detector": {"NonMaxSuppression": DATA}}
"""Why nodes are refused, by operator."""

SLOW_SUITE: Mapping[str, Mapping[str, str]] = {
    "bert_base_6": {},
    "conv3d_gru": {},
    "convnext_tiny": {},
    "densenet121": {},
    "efficientnet_b0": {},
    "inception_v2": {},
    "mobilenet_v2": {},
    "resnet3d_18": {},
    "resnet50": {},
    "segmenter": {},
    "shufflenet": {},
    "super_resolution": {},
}


class Exports:
    """Exports, each read and asked about once.

    Args:
        library: TensorRT for RTX.
    """

    def __init__(self, library: Any) -> None:
        self._plugin = plugin_over(library)
        self._known: dict[tuple[str, str], tuple[DataflowGraph, Proposals]] = {}

    def __call__(self, name: str, form: str = "torchscript") -> tuple[DataflowGraph, Proposals]:
        """An export's graph, and what is proposed of it."""
        if (name, form) not in self._known:
            graph = DataflowGraph(prepare(read(name, form)))
            self._known[name, form] = graph, proposals(self._plugin, graph, target())
        return self._known[name, form]


@pytest.fixture(scope="module")
def exports(rtx: Any) -> Exports:
    return Exports(rtx)


def suite_graph(name: str) -> DataflowGraph:
    entry = MODELS[name]
    shapes = {key: array.shape for key, array in entry.make_inputs(0).items()}
    return DataflowGraph(prepare(onnx_ir.from_proto(entry.build(0)), input_shapes=shapes))


def refused_operators(graph: DataflowGraph, found: Proposals) -> dict[str, str]:
    """Why nodes are refused, by operator; every other node is in some candidate."""
    reasons: dict[str, str] = {}
    for index, node in enumerate(graph.nodes):
        if not graph.needs_kernel >> index & 1:
            continue
        claimed = bool(found.covered >> index & 1)
        assert claimed is not bool(found.refusals.get(index)), (graph.names[index], found.refusals.get(index))
        if not claimed:
            reasons[node.op_type] = found.refusals[index]
    return reasons


def has_whole(graph: DataflowGraph, found: Proposals) -> bool:
    return any(graph.needs_kernel & ~each.sub_graph.nodes == 0 for each in found.candidates)


@pytest.mark.parametrize("form", ["torchscript", pytest.param("dynamo", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_node_of_an_export_is_claimed_and_the_whole_is_a_candidate(
    name: str, form: str, exports: Exports
) -> None:
    graph, found = exports(name, form)

    assert refused_operators(graph, found) == {}
    assert has_whole(graph, found)


@pytest.mark.parametrize("name", SUITE)
def test_every_node_of_the_suite_is_claimed_or_refused(name: str, rtx: Any) -> None:
    check_suite(name, SUITE[name], rtx)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_SUITE)
def test_every_node_of_the_large_suite_is_claimed_or_refused(name: str, rtx: Any) -> None:
    check_suite(name, SLOW_SUITE[name], rtx)


@pytest.mark.parametrize("name", ["resnext50", pytest.param("resnet50", marks=pytest.mark.slow)])
def test_every_convolution_of_a_resnet_is_taken_alone_and_with_what_is_behind_it(name: str, rtx: Any) -> None:
    """53 convolutions: 33 with a ReLU behind, and one in each block with what the block adds and a ReLU."""
    graph = DataflowGraph(prepare(resnext())) if name == "resnext50" else suite_graph(name)
    found = proposals(plugin_over(rtx), graph, target())
    groups = {each.sub_graph.nodes & graph.needs_kernel for each in found.candidates}

    assert refused_operators(graph, found) == {}
    assert has_whole(graph, found)
    kinds: collections.Counter[str] = collections.Counter()
    for index, node in enumerate(graph.nodes):
        if node.op_type != "Conv":
            continue
        kinds["alone"] += 1 << index in groups
        [behind] = iterate_bits(graph.users(node.outputs[0]))
        if graph.nodes[behind].op_type == "Relu":
            kinds["activated"] += 1 << index | 1 << behind in groups
        else:
            [last] = iterate_bits(graph.users(graph.nodes[behind].outputs[0]))
            kinds["added"] += 1 << index | 1 << behind | 1 << last in groups
    blocks_of_it = sum(DEPTHS)
    assert kinds["alone"] == 1 + 3 * blocks_of_it + len(DEPTHS) == 53
    assert kinds["activated"] == 1 + 2 * blocks_of_it
    assert kinds["added"] >= blocks_of_it  # where the skip is a convolution, too, the Add may be with either


def check_suite(name: str, wanted: Mapping[str, str], rtx: Any) -> None:
    graph = suite_graph(name)
    found = proposals(plugin_over(rtx), graph, target())

    assert refused_operators(graph, found) == dict(wanted)
    assert has_whole(graph, found) is not bool(wanted)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_every_attention_block_is_in_a_region_of_part_of_the_model(name: str, exports: Exports) -> None:
    """As many softmaxes as the configuration has attention blocks, each in a candidate with both its products."""
    graph, found = exports(name)
    parts = [each.sub_graph.nodes for each in found.candidates if graph.needs_kernel & ~each.sub_graph.nodes]
    products = sum(1 << index for index, node in enumerate(graph.nodes) if node.op_type == "MatMul")
    softmaxes = [index for index, node in enumerate(graph.nodes) if node.op_type == "Softmax"]

    assert len(softmaxes) == blocks(name).attention > 0
    for index in softmaxes:
        scores = (graph.ancestors[index] & products).bit_length() - 1  # the last product before it
        weighted = graph.descendants[index] & products
        block = 1 << index | 1 << scores | weighted & -weighted  # and the first after it
        assert any(block & ~part == 0 for part in parts), graph.names[index]


@pytest.mark.parametrize("name", FIVE)
def test_a_region_becomes_an_engine_that_survives_saving_and_loading(
    name: str, rtx: Any, exports: Exports, build: BuildContext, tmp_path: Path
) -> None:
    graph, found = exports(name)
    large = [
        each.sub_graph for each in found.candidates if (each.sub_graph.nodes & graph.needs_kernel).bit_count() >= MANY
    ]
    region = kernel_function(min(large, key=lambda each: each.nodes.bit_count()), "region")

    check_saved(DataflowGraph(region.model), 1, rtx, build, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2", "bert_base_6", "convnext_tiny", "resnet3d_18"])
def test_halves_of_full_size_become_engines_that_survive_saving_and_loading(
    name: str, rtx: Any, build: BuildContext, tmp_path: Path
) -> None:
    large = dataclasses.replace(build, effort=0, workspace_limit_bytes=1 << 30)  # what core allows
    check_saved(suite_graph(name), 2, rtx, large, tmp_path)


def check_saved(graph: DataflowGraph, count: int, rtx: Any, build: BuildContext, folder: Path) -> None:
    """A model in so many regions, each built, and the package they are saved in read again."""
    names = [graph.names[index] for index in range(len(graph.names)) if graph.needs_kernel >> index & 1]
    ends = [len(names) * place // count for place in range(count + 1)]
    parts = [names[start:end] for start, end in itertools.pairwise(ends)]
    partitioned = split(graph.model, {part[0]: target() for part in parts}, parts)
    made: dict[str, Artifact] = {}
    for site in call_sites(partitioned):
        [made[site.name]] = lowered(plugin_over(rtx), site.kernel_function(), build)
    assert len(made) == count
    path = folder / "regions.collage"
    targets = dict.fromkeys(made, target())
    save_package(path, partitioned, made, targets, {}, threads=1, model_name="regions", model_sha256="")

    package = load_package(path)

    assert {name: package.plan.artifacts[name] for name in made} == made
    assert all(package.plan.artifacts[name].files[ENGINE] == each.files[ENGINE] for name, each in made.items())
    assert dict(package.plan.targets) == targets
