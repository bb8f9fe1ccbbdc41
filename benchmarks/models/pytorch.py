"""Architectures of `transformers` as PyTorch's TorchScript exporter writes them, without clean-up."""

from __future__ import annotations

import functools

import numpy as np

from benchmarks.models.entry import Entry, Inputs, images
from benchmarks.models.exported import load

BERT_VOCABULARY = 30522
BERT_SEQUENCE = 128


def bert_inputs(generator: np.random.Generator) -> Inputs:
    """Generate token ids, a mask whose last eighth is padding, and two segments; each int64 [1, 128]."""
    positions = np.arange(BERT_SEQUENCE)
    return {
        "input_ids": generator.integers(0, BERT_VOCABULARY, (1, BERT_SEQUENCE)),
        "attention_mask": (positions < BERT_SEQUENCE * 7 // 8).astype(np.int64)[None],
        "token_type_ids": (positions >= BERT_SEQUENCE // 2).astype(np.int64)[None],
    }


ENTRIES = (
    Entry(
        name="bert_base_6",
        about="BERT base of 6 layers (hidden 768), 128 tokens",
        skeleton=functools.partial(load, "bert_base_6"),
        inputs=bert_inputs,
        large=True,
    ),
    Entry(
        name="mobilenet_v2",
        about="MobileNetV2 with a symbolic batch: 1093 nodes as exported, 100 of them work",
        skeleton=functools.partial(load, "mobilenet_v2"),
        inputs=images("pixel_values", 1, 3, 224, 224),
    ),
    Entry(
        name="convnext_tiny",
        about="ConvNeXt-T",
        skeleton=functools.partial(load, "convnext_tiny"),
        inputs=images("pixel_values", 1, 3, 224, 224),
        large=True,
    ),
)
