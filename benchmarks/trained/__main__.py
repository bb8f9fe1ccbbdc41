"""Generate the data of the trained networks, train them, and write both where they are committed.

Usage:
    python -m benchmarks.trained [NAME...]

Needs PyTorch (`tox -e torch` installs it) and takes some minutes on two cores. PyTorch 2.13.0 on one thread
(`OMP_NUM_THREADS=1`) made the committed models: 98.83 % of the test set for `cnn`, 99.95 % for `transformer`. Another
processor or version gives other weights; the data is the same everywhere.

The TorchScript exporter writes the models, as it does those of `benchmarks.models.torch_zoo`.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import onnx
import torch

from benchmarks.models.__main__ import write
from benchmarks.models.torch_zoo.__main__ import exported
from benchmarks.models.torch_zoo.precision import InPrecision
from benchmarks.trained import NETWORKS, SETS, TEST, TRAINING_SEED, Arrays, Network, networks
from benchmarks.trained.metric import accuracy

STEPS: Final = {"cnn": 1200, "transformer": 1400}
RATES: Final = {"cnn": 5e-3, "transformer": 2e-3}
"""Steps and highest learning rate of training."""
_BATCH: Final = 64
_DRAWN: Final = 50
"""Steps whose examples are drawn at once."""
_WARM_UP: Final = 0.15
"""Share of the steps in which the learning rate rises."""


def train(network: Network) -> torch.nn.Module:
    """Train a network on examples drawn as it goes; no example is seen twice."""
    torch.manual_seed(TRAINING_SEED)
    generator = np.random.default_rng(TRAINING_SEED)
    module: Any = getattr(networks, network.module)()
    steps, rate = STEPS[network.name], RATES[network.name]
    optimizer = torch.optim.AdamW(module.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=_WARM_UP)
    began = time.perf_counter()
    for first in range(0, steps, _DRAWN):
        drawn = [torch.from_numpy(array) for array in network.draw(generator, _DRAWN * _BATCH).values()]
        for inputs, label in zip(*(tensor.split(_BATCH) for tensor in drawn), strict=True):
            loss = module.loss(inputs, label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        seconds = time.perf_counter() - began
        print(f"{network.name}: step {first + _DRAWN} of {steps}, loss {loss.item():.3f}, {seconds:.0f} s", flush=True)
    trained: torch.nn.Module = module.eval()
    return trained


def test_accuracy(module: torch.nn.Module, network: Network) -> float:
    """Compute the accuracy on the test set in percent."""
    arrays = network.generate(TEST)
    samples = [dict(zip(arrays, each, strict=True)) for each in zip(*arrays.values(), strict=True)]
    with torch.no_grad():
        outputs = [{"logits": module(*_tensors(_inputs(sample))).numpy()} for sample in samples]
    return accuracy(outputs, samples)


def export(module: torch.nn.Module, network: Network) -> bytes:
    """Export a trained network as an ONNX model with its static batch."""
    inputs = _inputs(network.draw(np.random.default_rng(TRAINING_SEED), network.batch))
    model = onnx.load_from_string(exported(InPrecision(module, "float32"), inputs, ("logits",)))
    for node in model.graph.node:  # source locations: long, and with paths of the machine
        node.ClearField("doc_string")
        del node.metadata_props[:]
    model.graph.name = network.name
    return model.SerializeToString(deterministic=True)


def _inputs(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if name != "label"}


def _tensors(arrays: Arrays) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in arrays.values()]


def _pack(arrays: Arrays, stream: BinaryIO) -> None:
    np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the networks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trained", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NETWORKS)}; default: all")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in NETWORKS]:
        parser.error(f"there is no network {', '.join(unknown)}; there are {', '.join(NETWORKS)}")
    for name in options.names or NETWORKS:
        network = NETWORKS[name]
        print(f"{name}: {network.about}")
        for samples in SETS:
            write(network.data(samples), functools.partial(_pack, network.generate(samples)))
        module = train(network)
        print(f"{name}: {test_accuracy(module, network):.2f} % of the test set")
        data = export(module, network)
        write(network.model, lambda stream, data=data: stream.write(data))  # type: ignore[misc]
        print(f"{network.model}: {len(data) / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
