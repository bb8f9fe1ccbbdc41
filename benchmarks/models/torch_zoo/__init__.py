"""The models of `benchmarks/gpu.py` as our own plain PyTorch modules: no downloads, seeded weights.

The same module is run by PyTorch, compiled by it, and exported to ONNX for all other contenders. The
description of an architecture (names, inputs, published number of parameters) is available without torch;
only building one imports it.

The first five are those of Collage's paper (2111.00655). Its NasNet-A has no published number of
parameters, so here it is the NASNet-A paper's own (4 @ 1056), "mobile", at the same 224 x 224; the large
one is available by name.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models.entry import Inputs, images

if TYPE_CHECKING:
    import torch

BERT_VOCABULARY, GPT2_VOCABULARY, TOKENS = 30522, 50257, 128


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """One model.

    Attributes:
        name: Name on the command line.
        about: One line on what it is and where it is described.
        build: `file:function` in this package; the function makes the module, weights as PyTorch draws them.
        inputs: Makes inputs by name, in the order of the module's arguments, for a generator and a batch: float32
            where floating-point.
        outputs: Names of the module's results, in order.
        parameters: Published number of parameters, without BatchNormalization's statistics.
        asked_for: Whether it takes part only when it is named.
    """

    name: str
    about: str
    build: str
    inputs: Callable[[np.random.Generator, int], Inputs]
    outputs: tuple[str, ...] = ("logits",)
    parameters: int
    asked_for: bool = False

    def module(self) -> torch.nn.Module:
        """Build the module in evaluation mode; requires torch."""
        file, _, function = self.build.partition(":")
        made: torch.nn.Module = getattr(importlib.import_module(f"{__name__}.{file}"), function)()
        return made.eval()

    def make_inputs(self, batch: int, seed: int = 0) -> Inputs:
        """Generate the inputs by name, drawn from a seed; the first example is the same for every batch."""
        rows = [self.inputs(np.random.default_rng([seed, row]), 1) for row in range(batch)]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}


def _pictures(*shape: int) -> Callable[[np.random.Generator, int], Inputs]:
    return lambda generator, batch: images("pixels", batch, *shape)(generator)


def _noise(generator: np.random.Generator, batch: int) -> Inputs:
    return {"noise": generator.standard_normal((batch, 100, 1, 1), dtype=np.float32)}


def _text(generator: np.random.Generator, batch: int, vocabulary: int) -> dict[str, np.ndarray[Any, Any]]:
    return {"input_ids": generator.integers(0, vocabulary, (batch, TOKENS))}


def _pair(generator: np.random.Generator, batch: int) -> Inputs:
    """Generate token ids, two segments, and a mask that marks the last eighth as padding."""
    places = np.broadcast_to(np.arange(TOKENS), (batch, TOKENS))
    mask = (places < TOKENS * 7 // 8).astype(np.int64)
    segments = (places >= TOKENS // 2).astype(np.int64)
    return _text(generator, batch, BERT_VOCABULARY) | {"attention_mask": mask, "token_type_ids": segments}


_ALL = (
    Architecture(
        name="bert",
        about="BERT base, uncased (1810.04805), with its pooler; 128 tokens",
        build="bert:bert_base",
        inputs=_pair,
        outputs=("last_hidden_state", "pooler_output"),
        parameters=109_482_240,
    ),
    Architecture(
        name="dcgan",
        about="DCGAN's generator (1511.06434), 100 numbers to 64 x 64, kernels of 4 x 4",
        build="dcgan:generator",
        inputs=_noise,
        outputs=("image",),
        # hand-counted; the test counts the half as wide one of PyTorch's examples, which is published
        parameters=16 * (100 * 1024 + 1024 * 512 + 512 * 256 + 256 * 128 + 128 * 3) + 2 * (1024 + 512 + 256 + 128),
    ),
    Architecture(
        name="nasnet_a",
        about="NASNet-A (4 @ 1056), mobile (1707.07012), 224 x 224",
        build="nasnet:mobile",
        inputs=_pictures(3, 224, 224),
        parameters=5_289_978,  # "trainable" of keras.applications.NASNetMobile
    ),
    Architecture(
        name="resnet3d_50",
        about="ResNet-50 with three-dimensional kernels (1711.09577), 16 frames of 112 x 112, 400 classes",
        build="resnet:resnet3d_50",
        inputs=_pictures(3, 16, 112, 112),
        # torchvision's ResNet-50, every k x k kernel k times as deep, 600 classes fewer
        parameters=25_557_032
        + 6 * 7 * 7 * 3 * 64
        + 2 * 9 * (3 * 64**2 + 4 * 128**2 + 6 * 256**2 + 3 * 512**2)
        - 600 * 2049,
    ),
    Architecture(
        name="resnext50",
        about="ResNeXt-50 32x4d (1611.05431), 224 x 224",
        build="resnet:resnext50",
        inputs=_pictures(3, 224, 224),
        parameters=25_028_904,
    ),
    Architecture(
        name="vit",
        about="ViT-B/16 (2010.11929), 224 x 224",
        build="vit:vit_b_16",
        inputs=_pictures(3, 224, 224),
        parameters=86_567_656,
    ),
    Architecture(
        name="gpt2",
        about="GPT-2 small reading 128 tokens; logits of the next one",
        build="gpt2:gpt2_small",
        inputs=functools.partial(_text, vocabulary=GPT2_VOCABULARY),
        parameters=124_439_808,
    ),
    Architecture(
        name="mobilenet_v2",
        about="MobileNetV2 (1801.04381), 224 x 224",
        build="mobilenet_v2:mobilenet_v2",
        inputs=_pictures(3, 224, 224),
        parameters=3_504_872,
    ),
    Architecture(
        name="convnext",
        about="ConvNeXt-T (2201.03545), 224 x 224",
        build="convnext:convnext_t",
        inputs=_pictures(3, 224, 224),
        parameters=28_589_128,
    ),
    Architecture(
        name="nasnet_a_large",
        about="NASNet-A (6 @ 4032), large (1707.07012), 331 x 331",
        build="nasnet:large",
        inputs=_pictures(3, 331, 331),
        parameters=88_753_150,  # "trainable" of keras.applications.NASNetLarge
        asked_for=True,
    ),
)
ZOO: dict[str, Architecture] = {architecture.name: architecture for architecture in _ALL}
