"""How many products of real models are taken, and with what: counted from their configurations, not by patterns."""

from __future__ import annotations

import collections
from collections.abc import Mapping

import onnx_ir
import pytest

from benchmarks.models import MODELS
from collage.prepare.steps import prepare
from collage_core.ir.graph.dataflow import DataflowGraph
from tests.exports.blocks import CONFIGURATIONS
from tests.exports.reading import read

from .machine import TARGET, proposals

ALONE, BIAS, RESIDUAL, BOTH, RELU, TRANSPOSED, SCALED, SCALED_RESIDUAL, ADDED_TO_VIEW, GELU_OF_VIEW = (
    "cublas.matmul",
    "cublas.matmul_bias",
    "cublas.matmul_residual",
    "cublas.matmul_bias_residual",
    "cublas.matmul_bias_relu",
    "cublas.matmul_transposed",
    "cublas.matmul_scaled",
    "cublas.matmul_residual_scaled",
    "cublas.matmul_bias_residual_viewed",
    "cublas.matmul_bias_gelu_viewed",
)
SCALED_TRANSPOSED, SCALED_RESIDUAL_TRANSPOSED = (
    "cublas.matmul_transposed_scaled",
    "cublas.matmul_residual_transposed_scaled",
)


def expected(name: str, form: str) -> Mapping[str, int]:
    """Candidates of an exported model by form: what a layer multiplies, as papers and `transformers` describe it."""
    of = CONFIGURATIONS[name]
    match name:
        case "bert":  # queries, keys, values, what attention gives, in and out; two of these are added to what came in
            layers = of["num_hidden_layers"]
            dense, scores = 6 * layers, layers
            # the mask is added to the scores; the values' heads are read where they are
            dense_forms = {ALONE: dense + 2 * layers, BIAS: dense, BOTH: 2 * layers, TRANSPOSED: layers}
            return {**dense_forms, RESIDUAL: scores, **masked(scores)}
        case "vit":  # the same, and no mask
            layers = of["num_hidden_layers"]
            dense_forms = {ALONE: 8 * layers, BIAS: 6 * layers, BOTH: 2 * layers, TRANSPOSED: layers}
            return {**dense_forms, SCALED: layers, SCALED_TRANSPOSED: layers}
        case "gpt2":  # Gemms, which have their bias inside, of queries, keys and values at once, and three more; masked
            layers = of["n_layer"]
            attention = {ALONE: 2 * layers, RESIDUAL: layers, TRANSPOSED: layers, **masked(layers)}
            # rows of all sequences are multiplied at once; two results are added to what came in, one is activated, as
            # sequences again
            return {**attention, BIAS: 4 * layers, ADDED_TO_VIEW: 2 * layers, GELU_OF_VIEW: layers}
        case "llama":  # no biases; seven weights and attention's two products; two sums with what came in, and the mask
            layers = of["num_hidden_layers"]
            scores = masked(layers)
            if form == "dynamo":  # writes a view between the keys' Transpose and their factor
                scores = {name: scores[name] for name in (SCALED, SCALED_RESIDUAL)}
            return {ALONE: 9 * layers, RESIDUAL: 3 * layers, **scores}
        case "convnext":  # in and out of each block, scaled before it is added
            blocks = sum(of["depths"])
            return {ALONE: 2 * blocks, BIAS: 2 * blocks}
    raise ValueError(f"nobody wrote down what {name!r} multiplies")


def masked(scores: int) -> Mapping[str, int]:
    """Scores of queries and keys, which are scaled, with a mask and before it; the heads are read where they are."""
    return dict.fromkeys((SCALED, SCALED_RESIDUAL, SCALED_TRANSPOSED, SCALED_RESIDUAL_TRANSPOSED), scores)


SCALED_BIAS, SCALED_BOTH = "cublas.matmul_bias_scaled", "cublas.matmul_bias_residual_scaled"
SUITE = {
    "mnist": {ALONE: 1, BIAS: 1},
    "vgg19": {BIAS: 3, RELU: 2},  # two hidden layers with Relu, one to the classes; Gemms, which have their bias inside
    # six layers as above, and the pooler, a Gemm; GELU is written out, and the half that it ends with is a factor of
    # what the next matrix multiplies
    "bert_base_6": {ALONE: 48, BIAS: 37, BOTH: 12, RESIDUAL: 6, TRANSPOSED: 6, **masked(6)}
    | {SCALED: 12, SCALED_BIAS: 6, SCALED_BOTH: 6},
    # blocks of 3, 3, 9 and 3, with such a half each, and the classes, a Gemm
    "convnext_tiny": {ALONE: 36, BIAS: 37, SCALED: 18, SCALED_BIAS: 18},
}
SLOW = ("convnext_tiny",)


@pytest.mark.parametrize("form", ["torchscript", "dynamo"])
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2", "llama", "convnext"])
def test_every_product_of_an_export_is_taken_with_what_can_follow_it(name: str, form: str) -> None:
    check(prepare(read(name, form)), expected(name, form))


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in SUITE])
def test_every_product_of_the_suite_is_taken_with_what_can_follow_it(name: str) -> None:
    check(prepare(onnx_ir.from_proto(MODELS[name].skeleton())), SUITE[name])


def check(model: onnx_ir.Model, wanted: Mapping[str, int]) -> None:
    graph = DataflowGraph(model)
    found = proposals(graph, TARGET)

    assert dict(collections.Counter(each.sub_graph.label for each in found.candidates)) == dict(wanted)
    products = [index for index, node in enumerate(graph.nodes) if node.op_type in ("MatMul", "Gemm")]
    assert all(found.covered >> index & 1 for index in products)
    # each product is in exactly one candidate of its own, alone or, if a Gemm has its bias inside, with that
    smallest = {each.sub_graph.nodes for each in found.candidates if len(each.sub_graph.names) == 1}
    assert smallest == {1 << index for index in products}
