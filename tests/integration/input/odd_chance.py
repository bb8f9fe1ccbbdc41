"""Operators that draw random numbers, and Dropout, which does so in training only."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.integration.input.odd_models import OddModel, floats, made, odd, relu

WEIGHT = floats(4, 4, seed=7)
DRAWN = ("noise", "uniform", "coins", "thinned", "mixed", "picked")
"""Outputs of `chance` whose values are up to chance."""


@odd
def dropout_at_inference() -> OddModel:
    """Dropout with a ratio, with a mask, and told that this is no training."""

    def oracle(x: Any) -> dict[str, Any]:
        h = relu(x @ WEIGHT)
        return {"y": np.tanh(h) + h, "mask": np.ones((2, 4), bool)}

    return made(
        "dropout_at_inference",
        """dropout (float[2,4] x) => (float[2,4] y, bool[2,4] mask) <float half = {0.5}, bool off = {0}> {
          m = MatMul(x, w)
          r = Relu(m)
          a, mask = Dropout(r, half)
          t = Tanh(a)
          b = Dropout<seed = 3>(t, half, off)
          y = Add(a, b)
        }""",
        oracle,
        {"x": floats(2, 4)},
        w=WEIGHT,
    )


def chance() -> OddModel:
    """Numbers drawn at random, and others beside them that are not."""

    def oracle(x: Any) -> dict[str, Any]:
        return {"y": np.tanh(relu(x @ WEIGHT)), "kept": -x}

    return made(
        "chance",
        """chance (float[2,4] x) => (float[2,4] y, float[2,4] kept, float[2,4] noise, float[2,4] uniform,
          float[2,4] coins, float[2,4] thinned, float[2,4] mixed, int32[2,3] picked)
          <float half = {0.5}, bool on = {1}> {
          m = MatMul(x, w)
          r = Relu(m)
          y = Tanh(r)
          kept = Neg(x)
          noise = RandomNormal<shape = [2, 4], mean = 100.0>()
          uniform = RandomUniformLike<low = 5.0, high = 6.0>(x)
          p = Sigmoid(x)
          coins = Bernoulli(p)
          thinned = Dropout(y, half, on)
          sum = Add(r, noise)
          mixed = MatMul(sum, w)
          picked = Multinomial<sample_size = 3>(p)
        }""",
        oracle,
        {"x": floats(2, 4)},
        w=WEIGHT,
    )
