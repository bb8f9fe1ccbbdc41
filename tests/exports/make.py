"""Writes the exports beside it: small transformers of the usual makes, as both of PyTorch's exporters write them.

Run by hand, when an architecture is added or the exporters are to be newer ones; needs torch, transformers and
onnxscript, which reading the exports does not. README.md has the versions it ran with last.

    python -m tests.exports.make

Every model has its real structure and small widths, and no two of its weights are equal, as in a trained one. What is
stored of a weight is one number, repeated, which compresses to nothing; tensors of few values (scales, masks, shapes)
are kept, because patterns look at them.
"""

from __future__ import annotations

import gzip
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
import transformers
from onnx import numpy_helper

from tests.exports.parts import PARTS, WIDTH
from tests.exports.parts import TOKENS as PART_TOKENS

FOLDER = Path(__file__).parent
TOKENS, FRAMES, VOCABULARY = 12, 24, 96
MOST_KEPT_VALUES = 16
"""Tensors of more different values are weights."""

FORMS: dict[str, dict[str, Any]] = {
    # as they come: each exporter's own opset, attention by scaled_dot_product_attention
    "torchscript": {"dynamo": False, "attention": "sdpa"},
    "dynamo": {"dynamo": True, "attention": "sdpa"},
    # the oldest opset of each, before operators for GELU and, in TorchScript, layer norm; attention written out
    "torchscript_old": {"dynamo": False, "attention": "eager", "opset_version": 14},
    "dynamo_old": {"dynamo": True, "attention": "eager", "opset_version": 18},
    # attention and RMS norm as operators
    "dynamo_new": {"dynamo": True, "attention": "sdpa", "opset_version": 23},
}


class Returns(torch.nn.Module):
    """Calls a model by names of its arguments and returns one field of what it returns."""

    def __init__(self, model: torch.nn.Module, arguments: list[str], field: str) -> None:
        super().__init__()
        self.model = model
        self.arguments = arguments
        self.field = field
        self.options = {"use_cache": False} if hasattr(model.config, "use_cache") else {}

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        """Call with positional tensors, which is what exporters trace."""
        result = self.model(**dict(zip(self.arguments, tensors, strict=True)), **self.options)
        chosen: torch.Tensor = getattr(result, self.field)
        return chosen


def architectures(attention: str) -> Iterator[tuple[str, torch.nn.Module, dict[str, torch.Tensor], str]]:
    """Name, model, example inputs, and which field of its result each architecture is exported with."""
    hidden = "last_hidden_state"
    tokens = torch.ones(1, TOKENS, dtype=torch.int64)
    text = {"input_ids": tokens, "attention_mask": tokens}
    kind = {"attn_implementation": attention}
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    of_text = {"vocab_size": VOCABULARY, "max_position_embeddings": 32}
    bert = transformers.BertConfig(**sizes, **of_text, **kind)
    yield "bert", transformers.BertModel(bert), text, hidden
    vit = transformers.ViTConfig(**sizes, image_size=32, patch_size=8, **kind)
    yield "vit", transformers.ViTModel(vit), {"pixel_values": torch.zeros(1, 3, 32, 32)}, hidden
    convnext = transformers.ConvNextConfig(hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 3, 2], image_size=64)
    yield "convnext", transformers.ConvNextModel(convnext), {"pixel_values": torch.zeros(1, 3, 64, 64)}, "pooler_output"
    gpt2 = transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=3, n_head=4, n_positions=32, **kind)
    yield "gpt2", transformers.GPT2Model(gpt2), text, hidden
    whisper = transformers.WhisperConfig(
        vocab_size=VOCABULARY,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=3,
        decoder_layers=4,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=FRAMES,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        **kind,
    )
    both = transformers.WhisperModel(whisper)
    yield "whisper_encoder", both.encoder, {"input_features": torch.zeros(1, 16, 2 * FRAMES)}, hidden
    heard = {"encoder_hidden_states": torch.zeros(1, FRAMES, 64)}
    yield "whisper_decoder", both.decoder, text | heard, hidden
    llama = transformers.LlamaConfig(**sizes, **of_text, num_key_value_heads=2, **kind)
    yield "llama", transformers.LlamaModel(llama), text, hidden


def chains() -> Iterator[tuple[str, torch.nn.Module]]:
    """Name and model of each chain of parts."""
    for name, parts in PARTS.items():
        yield name, torch.nn.Sequential(*(make() for _, make in parts.values()))


def exported(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], form: Mapping[str, Any]) -> onnx.ModelProto:
    """One model as one exporter writes it."""
    buffer = io.BytesIO()
    options = {key: value for key, value in form.items() if key != "attention"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            tuple(inputs.values()),
            None if form["dynamo"] else buffer,
            input_names=list(inputs),
            output_names=["result"],
            **({"verbose": False} if form["dynamo"] else {}),
            **options,
        )
    proto: onnx.ModelProto = program.model_proto if form["dynamo"] else onnx.load_from_string(buffer.getvalue())
    return proto


def strip(proto: onnx.ModelProto) -> None:
    """Take out, in place, what takes room and no pattern looks at: values of weights, source locations."""
    constants = list(proto.graph.initializer)
    constants += [each.t for node in proto.graph.node if node.op_type == "Constant" for each in node.attribute]
    for position, tensor in enumerate(constants):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and len(np.unique(array)) > MOST_KEPT_VALUES:
            same = np.full(array.shape, 2.0 + position / 1024, array.dtype)
            tensor.CopyFrom(numpy_helper.from_array(same, tensor.name))
    for each in (*proto.graph.node, *proto.graph.value_info, *proto.graph.input, *proto.graph.output, *constants):
        each.ClearField("doc_string")
        del each.metadata_props[:]
    del proto.metadata_props[:], proto.graph.metadata_props[:]


def write(name: str, form: str, model: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> None:
    """Export one model in one form, with weights of which no two are equal."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_()
    proto = exported(model.eval(), inputs, FORMS[form])
    proto.graph.name = name
    strip(proto)
    path = FOLDER / f"{name}.{form}.onnx.gz"
    path.write_bytes(gzip.compress(proto.SerializeToString(deterministic=True), mtime=0))
    print(f"{path.name}: {len(proto.graph.node)} nodes, {path.stat().st_size / 1e3:.1f} kB")


def main() -> None:
    """Write all exports, and the numbers of layers and heads they were made with."""
    configurations = {}
    for form, options in FORMS.items():
        torch.manual_seed(0)
        for name, model, inputs, field in architectures(options["attention"]):
            write(name, form, Returns(model, list(inputs), field), inputs)
            counts = {
                key: value
                for key, value in model.config.to_dict().items()
                if isinstance(value, (int, list)) and not isinstance(value, bool)
                if key.endswith(("layers", "heads", "_layer", "_head", "depths"))
            }
            configurations[name] = {"model_type": model.config.model_type, **counts}
        for name, chain in chains():
            write(name, form, chain, {"x": torch.zeros(1, PART_TOKENS, WIDTH)})
            write(f"{name}_half", form, chain.half(), {"x": torch.zeros(1, PART_TOKENS, WIDTH, dtype=torch.float16)})
    for name, parts in PARTS.items():
        sorts = {"parts": {part: sort for part, (sort, _) in parts.items()}}
        configurations |= {name: sorts, f"{name}_half": sorts}
    (FOLDER / "configurations.json").write_text(json.dumps(configurations, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
