"""Accuracy of a classifier: the metric of the trained networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def accuracy(
    outputs: Sequence[Mapping[str, np.ndarray[Any, Any]]], samples: Sequence[Mapping[str, np.ndarray[Any, Any]]]
) -> float:
    """Compute the percentage of examples whose largest logit is that of their label; higher is better.

    Args:
        outputs: Outputs by name, one mapping for each sample: `logits`, [batch, classes].
        samples: Arrays by name, in the same order: `label`, [batch].

    Examples:
        >>> logits = np.array([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3], [0.4, 0.6]])
        >>> accuracy([{"logits": logits}], [{"label": np.array([1, 0, 1, 1])}])
        75.0
    """
    right = [
        output["logits"].argmax(axis=-1) == sample["label"] for output, sample in zip(outputs, samples, strict=True)
    ]
    return 100 * float(np.concatenate(right).mean())
