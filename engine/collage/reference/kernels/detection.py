"""Compute NonMaxSuppression, comparing each chosen box with all others at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from collage.reference.kernels.windows import Array


def non_max_suppression(inputs: Sequence[Any], attributes: Mapping[str, Any]) -> tuple[Array, ...]:
    """Compute NonMaxSuppression; of equal scores the lower box index comes first, as in ONNX's own."""
    boxes, scores = inputs[0], inputs[1]
    limit = _scalar(inputs, 2, 0)
    overlap = _scalar(inputs, 3, 0.0)
    threshold = _scalar(inputs, 4, None)
    chosen: list[tuple[int, int, int]] = []
    for image in range(boxes.shape[0]):
        corners = _corners(boxes[image], bool(attributes.get("center_point_box", 0)))
        for label in range(scores.shape[1]):
            rank = scores[image, label]
            order = np.argsort(-rank, kind="stable")
            if threshold is not None:
                order = order[rank[order] > threshold]
            picked = _pick(corners, order, int(max(limit, 0)), overlap)
            chosen.extend((image, label, box) for box in picked)
    return (np.array(chosen, dtype=np.int64).reshape(-1, 3),)


def _pick(corners: Array, order: Array, limit: int, overlap: float) -> list[int]:
    picked: list[int] = []
    while order.size and len(picked) < limit:
        best, order = order[0], order[1:]
        picked.append(int(best))
        order = order[~(_overlap(corners[best], corners[order]) > overlap)]
    return picked


def _corners(boxes: Array, centred: bool) -> Array:
    """Return boxes as (x low, y low, x high, y high)."""
    if centred:
        half = boxes[:, 2:] / 2
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
    low = np.minimum(boxes[:, :2], boxes[:, 2:])
    high = np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low[:, ::-1], high[:, ::-1]], axis=1)


def _overlap(box: Array, others: Array) -> Array:
    """Return intersection over union; 0 where a box or the intersection is empty, which never suppresses."""
    shared = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    intersection = np.prod(np.maximum(shared, 0), axis=1)
    area = np.prod(box[2:] - box[:2])
    areas = np.prod(others[:, 2:] - others[:, :2], axis=1)
    union = area + areas - intersection
    valid = (intersection > 0) & (area > 0) & (areas > 0) & (union > 0)
    ratio: Array = np.divide(intersection, union, out=np.full(len(others), -np.inf, others.dtype), where=valid)
    return ratio


def _scalar(inputs: Sequence[Any], position: int, default: Any) -> Any:
    if len(inputs) <= position or inputs[position] is None or inputs[position].size == 0:
        return default
    return inputs[position].reshape(-1)[0]
