"""Make the skeletons under `exported/`: graphs as PyTorch's TorchScript exporter writes them, without weights.

Run by hand when an architecture is added or the exporter is upgraded; needs torch and transformers, which
building the models does not:

    python -m benchmarks.models.export
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import onnx
import torch
import transformers

from benchmarks.models.exported import FOLDER
from benchmarks.models.weights import strip

OPSET = 17
LABELS: dict[str, Any] = {"num_labels": 1000}


class Returns(torch.nn.Module):
    """Wraps a `transformers` model and returns selected fields of its result, as a tuple."""

    def __init__(self, model: torch.nn.Module, arguments: list[str], fields: list[str]) -> None:
        super().__init__()
        self.model = model.eval()
        self.arguments = arguments
        self.fields = fields

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call with positional tensors, which is what the exporter traces."""
        result = self.model(**dict(zip(self.arguments, tensors, strict=True)))
        return tuple(getattr(result, field) for field in self.fields)


def export(
    name: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor], outputs: list[str], **options: Any
) -> None:
    """Export one architecture and write its skeleton.

    Args:
        name: Of the file, without suffix.
        model: Of `transformers`.
        inputs: Example inputs, by name.
        outputs: Fields of the result that become the outputs, under their names.
        **options: Of `torch.onnx.export`.
    """
    write_skeleton(name, Returns(model, list(inputs), outputs), inputs, outputs, **options)


def write_skeleton(
    name: str, module: torch.nn.Module, inputs: dict[str, torch.Tensor], outputs: list[str], **options: Any
) -> None:
    """Export a module that takes and returns tensors, and write its skeleton; arguments as of `export`."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            buffer,  # type: ignore[arg-type]  # Accepted where dynamo is off.
            input_names=list(inputs),
            output_names=outputs,
            opset_version=OPSET,
            dynamo=False,
            **options,
        )
    proto = onnx.load_from_string(buffer.getvalue())
    for node in proto.graph.node:  # Source locations: long, and of no use to anybody.
        node.ClearField("doc_string")
        del node.metadata_props[:]
    proto.graph.name = name
    strip(proto)
    path = FOLDER / f"{name}.onnx"
    path.write_bytes(proto.SerializeToString(deterministic=True))
    print(f"{path.name}: {len(proto.graph.node)} nodes, {path.stat().st_size / 1e3:.0f} kB")


class WithCache(torch.nn.Module):
    """Wraps a `transformers` decoder: past keys and values of each layer come in and go out as tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, ids: torch.Tensor, *past: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits, and keys and values that are longer by the new tokens."""
        cache = transformers.DynamicCache(list(zip(past[::2], past[1::2], strict=True)))
        result = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
        layers = result.past_key_values.layers
        return (result.logits, *(each for layer in layers for each in (layer.keys, layer.values)))


def export_decoder(name: str, model: torch.nn.Module, layers: int, heads: int, width: int) -> None:
    """Export a decoder that is given one token and what it keeps of those before, as many as there are."""
    past = {
        f"past_{layer}_{kind}": torch.zeros(1, heads, 7, width) for layer in range(layers) for kind in ("key", "value")
    }
    present = [each.replace("past", "present") for each in past]
    write_skeleton(
        name,
        WithCache(model),
        {"input_ids": torch.ones(1, 1, dtype=torch.int64), **past},
        ["logits", *present],
        dynamic_axes={key: {2: "past"} for key in past} | {key: {2: "total"} for key in present},
    )


def main() -> None:
    """Write all skeletons."""
    torch.manual_seed(0)
    image = {"pixel_values": torch.zeros(1, 3, 224, 224)}
    mobilenet = transformers.MobileNetV2ForImageClassification(transformers.MobileNetV2Config(**LABELS))
    export(
        "mobilenet_v2",
        mobilenet,
        image,
        ["logits"],
        dynamic_axes={"pixel_values": {0: "batch"}, "logits": {0: "batch"}},
    )
    convnext = transformers.ConvNextForImageClassification(transformers.ConvNextConfig(**LABELS))
    export("convnext_tiny", convnext, image, ["logits"])
    tokens = torch.ones(1, 128, dtype=torch.int64)
    text = {"input_ids": tokens, "attention_mask": tokens, "token_type_ids": tokens}
    bert = transformers.BertModel(transformers.BertConfig(num_hidden_layers=6))
    fields = ["last_hidden_state", "pooler_output"]
    export("bert_base_6", bert, text, fields)
    token_axes = {key: {0: "batch", 1: "sequence"} for key in (*text, "last_hidden_state")}
    axes = {**token_axes, "pooler_output": {0: "batch"}}
    export("bert_base_6_dynamic", bert, text, fields, dynamic_axes=axes)
    gpt2 = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=6))
    export_decoder("gpt2_6_with_past", gpt2, layers=6, heads=12, width=64)


if __name__ == "__main__":
    main()
