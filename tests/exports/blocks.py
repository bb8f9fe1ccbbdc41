"""How many blocks of each sort the exported models have, counted from their configurations alone.

What a layer holds is as the papers and `transformers` describe it, and a chain of parts holds what its parts are
called; no graph is looked at.
"""

from __future__ import annotations

import collections
import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Blocks of one model, and the heads of each of its attention blocks (0 where they differ)."""

    attention: int = 0
    heads: int = 0
    key_value_heads: int = 0
    gelu: int = 0
    gelu_tanh: int = 0
    quick_gelu: int = 0
    silu: int = 0
    layer_norm: int = 0
    layer_norm_of_two_axes: int = 0
    layer_norm_of_channels: int = 0
    rms_norm: int = 0


CONFIGURATIONS: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "configurations.json").read_text(encoding="utf-8")
)
CHAINS = tuple(name for name, configuration in CONFIGURATIONS.items() if "parts" in configuration)
MODELS = tuple(name for name in CONFIGURATIONS if name not in CHAINS)


def blocks(name: str) -> Blocks:
    """Blocks of the model of one name."""
    of = CONFIGURATIONS[name]
    if "parts" in of:
        return Blocks(**collections.Counter(sort for sort in of["parts"].values() if sort != "none"))
    match name:
        case "bert":  # the embeddings are normalised, and each layer behind its attention and its two matrices
            layers, heads = of["num_hidden_layers"], of["num_attention_heads"]
            return Blocks(attention=layers, heads=heads, key_value_heads=heads, gelu=layers, layer_norm=1 + 2 * layers)
        case "vit":  # each layer before both, and once at the end
            layers, heads = of["num_hidden_layers"], of["num_attention_heads"]
            return Blocks(attention=layers, heads=heads, key_value_heads=heads, gelu=layers, layer_norm=2 * layers + 1)
        case "convnext":  # the stem, each layer, before each stage but the first, and the pooled features
            depths = of["depths"]
            return Blocks(gelu=sum(depths), layer_norm=1 + sum(depths) + len(depths) - 1 + 1)
        case "gpt2":  # as ViT, with the other formula of GELU
            layers, heads = of["n_layer"], of["n_head"]
            return Blocks(
                attention=layers, heads=heads, key_value_heads=heads, gelu_tanh=layers, layer_norm=2 * layers + 1
            )
        case "whisper_encoder":  # two convolutions come first, each with a GELU
            layers, heads = of["encoder_layers"], of["encoder_attention_heads"]
            return Blocks(
                attention=layers, heads=heads, key_value_heads=heads, gelu=2 + layers, layer_norm=2 * layers + 1
            )
        case "whisper_decoder":  # each layer attends to the text and to the encoder
            layers, heads = of["decoder_layers"], of["decoder_attention_heads"]
            return Blocks(
                attention=2 * layers, heads=heads, key_value_heads=heads, gelu=layers, layer_norm=3 * layers + 1
            )
        case "llama":  # heads of keys and values are shared by groups of heads of queries
            layers, heads = of["num_hidden_layers"], of["num_attention_heads"]
            return Blocks(
                attention=layers,
                heads=heads,
                key_value_heads=of["num_key_value_heads"],
                silu=layers,
                rms_norm=2 * layers + 1,
            )
    raise ValueError(f"nobody wrote down what a layer of {name!r} holds")
