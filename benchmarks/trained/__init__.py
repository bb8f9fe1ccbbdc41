"""Two small trained networks, with the data that calibrates and tests them.

The cost of rounding in points of accuracy shows only in trained weights: `cnn` reads letters in noisy pictures,
`transformer` finds the winner of a vote in a sequence of tokens. Models and data are committed beside this file;
`python -m benchmarks.trained` makes them.

The data is in three sets that have no example in common: samples for calibration, labelled samples on which a precision
is decided, and labelled samples on which that decision is tested.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from benchmarks.trained.letters import letters
from benchmarks.trained.votes import votes

Arrays: TypeAlias = dict[str, np.ndarray[Any, Any]]

FOLDER: Final = Path(__file__).parent
"""Folder of the committed models and data."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SampleSet:
    """One set of data.

    Attributes:
        name: Name in the file's name.
        seed: Seed of the data.
        examples: Number of examples; a multiple of every network's batch.
        labelled: Whether the file holds `label`.
    """

    name: str
    seed: int
    examples: int
    labelled: bool = True


TRAINING_SEED: Final = 0
"""Seed of initial weights and of the data of training, which are not committed."""
CALIBRATION: Final = SampleSet(name="calibration", seed=1, examples=256, labelled=False)
DECIDING: Final = SampleSet(name="deciding", seed=2, examples=2048)
TEST: Final = SampleSet(name="test", seed=3, examples=2048)
SETS: Final = (CALIBRATION, DECIDING, TEST)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """One network.

    Attributes:
        name: Name on the command line and of the files.
        about: One line on what it is and what it computes.
        module: Name of its class in `benchmarks.trained.networks`, which needs PyTorch.
        draw: Makes examples with labels, for a generator and a number of examples.
        batch: Examples of one run; static in the model.
    """

    name: str
    about: str
    module: str
    draw: Callable[[np.random.Generator, int], Arrays]
    batch: int

    @property
    def model(self) -> Path:
        """The ONNX model."""
        return FOLDER / f"{self.name}.onnx"

    def data(self, samples: SampleSet) -> Path:
        """Return the path of a set of data: an NPZ file whose arrays' first axis counts the samples."""
        return FOLDER / f"{self.name}-{samples.name}.npz"

    def generate(self, samples: SampleSet) -> Arrays:
        """Generate the arrays of a set of data.

        Returns:
            Arrays by name, [runs, batch, ...]: one sample is what one run of the model reads.
        """
        drawn = self.draw(np.random.default_rng(samples.seed), samples.examples)
        return {
            name: array.reshape(-1, self.batch, *array.shape[1:])
            for name, array in drawn.items()
            if samples.labelled or name != "label"
        }


NETWORKS: Final = {
    network.name: network
    for network in (
        Network(
            name="cnn",
            about="residual CNN of 6 convolutions; 24 x 24 uint8 pixels to one of 15 letters",
            module="Cnn",
            draw=letters,
            batch=64,
        ),
        Network(
            name="transformer",
            about="pre-norm encoder of 2 blocks, width 64; 64 int64 tokens to one of 8 symbols",
            module="Transformer",
            draw=votes,
            batch=64,
        ),
    )
}
