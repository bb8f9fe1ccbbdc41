"""Models whose sizes vary from run to run. They are not of the suite, whose models are measured at one size."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np

from benchmarks.models import MODELS
from benchmarks.models.detector import SIZE, any_size_skeleton
from benchmarks.models.entry import Entry, Inputs, images
from benchmarks.models.exported import load
from benchmarks.models.pytorch import bert_inputs
from benchmarks.models.segmenter import SIZE as SEGMENTED
from benchmarks.models.segmenter import segmenter

GPT2_LAYERS: Final = 6


def gpt2_inputs(generator: np.random.Generator, past: int = 32) -> Inputs:
    """Generate one token id, int64 [1, 1], and keys and values of those before, float32 [1, 12, past, 64]."""
    names = [f"past_{layer}_{kind}" for layer in range(GPT2_LAYERS) for kind in ("key", "value")]
    kept = {name: generator.standard_normal((1, 12, past, 64), np.float32) for name in names}
    return {"input_ids": generator.integers(0, 50257, (1, 1)), **kept}


ENTRIES = (
    Entry(
        name="bert_base_6_dynamic",
        about="BERT base of 6 layers with a symbolic batch and sequence: 733 nodes as exported",
        skeleton=functools.partial(load, "bert_base_6_dynamic"),
        inputs=bert_inputs,
        large=True,
    ),
    Entry(
        name="fcos_detector",
        about="Detector without anchors for images of any size; decoding and NonMaxSuppression in the graph",
        skeleton=any_size_skeleton,
        inputs=images("image", 1, 3, SIZE, SIZE),
    ),
    Entry(
        name="gpt2_6_with_past",
        about="GPT-2 of 6 layers, one token at a time: keys and values of those before come in and go out",
        skeleton=functools.partial(load, "gpt2_6_with_past"),
        inputs=gpt2_inputs,
        large=True,
    ),
    Entry(
        name="segmenter_any_batch",
        about="the segmenter for a symbolic batch of images of half the side; upsampling and ArgMax in the graph",
        skeleton=functools.partial(segmenter, "segmenter_any_batch", SEGMENTED // 2, "batch"),
        inputs=images("image", 1, 3, SEGMENTED // 2, SEGMENTED // 2),
    ),
    MODELS["mobilenet_v2"],
)
VARYING: dict[str, Entry] = {entry.name: entry for entry in ENTRIES}
