"""The trained networks: small, more than 95 % right on data that nothing else uses, and on data from their seeds."""

from __future__ import annotations

import itertools
import runpy
from typing import Any

import numpy as np
import onnx
import onnx_ir
import pytest
from onnx.reference import ReferenceEvaluator

from benchmarks.judge.inputs import read
from benchmarks.trained import CALIBRATION, DECIDING, FOLDER, NETWORKS, SETS, TEST, Network, SampleSet, metric
from benchmarks.trained.letters import LETTERS, SIDE, letters
from benchmarks.trained.votes import MINUS, PLUS, SYMBOLS, balance, votes
from collage.setup.inputs.calibration import calibration_samples
from collage_core.ir.graph.dataflow import DataflowGraph

each_network = pytest.mark.parametrize(
    "network",
    [pytest.param(each, marks=() if name == "cnn" else pytest.mark.slow, id=name) for name, each in NETWORKS.items()],
)
Sample = dict[str, np.ndarray[Any, Any]]


def samples_of(network: Network, samples: SampleSet) -> list[Sample]:
    arrays = read(network.data(samples))
    return [dict(zip(arrays, each, strict=True)) for each in zip(*arrays.values(), strict=True)]


def input_of(network: Network) -> str:
    [name] = [name for name in read(network.data(TEST)) if name != "label"]
    return name


@each_network
def test_a_model_is_below_one_megabyte_and_has_a_static_batch(network: Network) -> None:
    model = onnx.load(network.model)
    onnx.checker.check_model(model, full_check=True)
    [given], [result] = model.graph.input, model.graph.output

    assert network.model.stat().st_size < 1e6
    assert given.name == input_of(network)
    assert result.name == "logits"
    assert [value.type.tensor_type.shape.dim[0].dim_value for value in (given, result)] == [network.batch] * 2
    assert not any(node.doc_string or node.metadata_props for node in model.graph.node)


@each_network
@pytest.mark.parametrize("samples", [DECIDING, TEST], ids=lambda samples: samples.name)
@pytest.mark.plugins
def test_more_than_95_percent_of_the_labelled_samples_are_right(network: Network, samples: SampleSet) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(network.model, providers=["CPUExecutionProvider"])
    name = input_of(network)

    labelled = samples_of(network, samples)
    outputs = [{"logits": session.run(["logits"], {name: sample[name]})[0]} for sample in labelled]

    assert metric.accuracy(outputs, labelled) > 95


@each_network
def test_the_reference_of_onnx_gets_a_sample_right_as_well(network: Network) -> None:
    sample = samples_of(network, TEST)[0]
    name = input_of(network)

    [logits] = ReferenceEvaluator(onnx.load(network.model)).run(["logits"], {name: sample[name]})

    assert metric.accuracy([{"logits": logits}], [sample]) > 90


@each_network
@pytest.mark.parametrize("samples", SETS, ids=lambda samples: samples.name)
def test_the_data_is_what_its_seed_gives(network: Network, samples: SampleSet) -> None:
    committed, generated = read(network.data(samples)), network.generate(samples)

    assert committed.keys() == generated.keys()
    assert ("label" in committed) == samples.labelled
    for name, array in generated.items():
        assert committed[name].dtype == array.dtype
        np.testing.assert_array_equal(committed[name], array)


@each_network
def test_no_example_is_in_two_sets_or_twice_in_one(network: Network) -> None:
    name = input_of(network)
    arrays = [read(network.data(samples))[name] for samples in SETS]
    examples = [example.tobytes() for array in arrays for example in itertools.chain.from_iterable(array)]

    assert len(examples) == sum(samples.examples for samples in SETS)
    assert len(set(examples)) == len(examples)


@each_network
def test_the_samples_for_calibration_are_read_one_for_each_run(network: Network) -> None:
    samples = calibration_samples(DataflowGraph(onnx_ir.load(network.model)), network.data(CALIBRATION))

    assert len(samples) == CALIBRATION.examples // network.batch
    np.testing.assert_array_equal(
        samples[-1][input_of(network)], samples_of(network, CALIBRATION)[-1][input_of(network)]
    )


@each_network
def test_no_class_is_rare(network: Network) -> None:
    counts = np.bincount(read(network.data(TEST))["label"].ravel())

    assert len(counts) == {"cnn": len(LETTERS), "transformer": SYMBOLS}[network.name]
    assert counts.min() > 0.7 * counts.mean()


def test_the_metric_is_the_share_of_largest_logits_that_are_at_the_label() -> None:
    # loaded by its path, as `--metric` does
    accuracy = runpy.run_path(str(FOLDER / "metric.py"))["accuracy"]
    logits = np.eye(4, dtype=np.float32)

    assert accuracy([{"logits": logits}], [{"label": np.arange(4)}]) == 100
    assert accuracy([{"logits": logits}] * 2, [{"label": np.arange(4)}, {"label": np.zeros(4)}]) == 62.5
    with pytest.raises(ValueError, match="shorter"):
        accuracy([{"logits": logits}] * 2, [{"label": np.arange(4)}])


def test_pictures_are_of_few_grey_levels_and_differ_by_letter() -> None:
    drawn = letters(np.random.default_rng(5), 600)

    assert drawn["pixels"].shape == (600, 1, SIDE, SIDE)
    assert np.unique(drawn["pixels"]).tolist() == [0, 85, 170, 255]
    means = np.stack([drawn["pixels"][drawn["label"] == label].mean(axis=0) for label in range(len(LETTERS))])
    assert min(abs(one - other).max() for one, other in itertools.combinations(means, 2)) > 25


def test_the_winner_of_a_vote_is_ahead_of_every_other_symbol() -> None:
    drawn = votes(np.random.default_rng(5), 200)

    for tokens, label in zip(drawn["tokens"].tolist(), drawn["label"], strict=True):
        counted = dict.fromkeys(range(SYMBOLS), 0)
        for before, token in itertools.pairwise(tokens):
            if token < SYMBOLS:
                counted[token] += {PLUS: 1, MINUS: -1}.get(before, 0)
        assert [counted[symbol] for symbol in range(SYMBOLS)] == balance(np.array([tokens]))[0].tolist()
        assert all(counted[label] > count for symbol, count in counted.items() if symbol != label)
