"""A function and its kernel as files, for a process that knows nothing else of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from collage_core.contract import Artifact, KernelFunction, Requirement
from collage_core.ir.graph.dataflow import DataflowGraph
from collage_core.ir.io.model_io import model_from_bytes, model_to_bytes


def save(function: KernelFunction, artifact: Artifact, folder: Path) -> None:
    """Writes the function's model, what the artifact says as JSON, and the bytes it holds."""
    (folder / "model.onnx").write_bytes(model_to_bytes(function.model))
    fields = {field.name: getattr(artifact, field.name) for field in dataclasses.fields(artifact)}
    for name, data in fields.pop("files").items():
        (folder / name).write_bytes(data)
    fields["requires"] = [dataclasses.asdict(each) for each in artifact.requires]
    fields |= {name: dict(fields[name]) for name in ("metadata", "constants")}
    (folder / "artifact.json").write_text(json.dumps(fields | {"names": list(artifact.files)}))


def saved(folder: Path) -> tuple[KernelFunction, Artifact]:
    """Reads what `save` wrote."""
    model = model_from_bytes((folder / "model.onnx").read_bytes())
    graph = DataflowGraph(model)
    inputs, outputs = (tuple(map(graph.spec, values)) for values in (model.graph.inputs, model.graph.outputs))
    function = KernelFunction(name="saved", model=model, inputs=inputs, outputs=outputs)
    fields = json.loads((folder / "artifact.json").read_text())
    files = {name: (folder / name).read_bytes() for name in fields.pop("names")}
    requires = tuple(Requirement(**each) for each in fields.pop("requires"))
    return function, Artifact(files=files, requires=requires, **fields)
