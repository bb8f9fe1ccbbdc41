"""Facts about model and machine as the record keeps them."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import onnx_ir

from collage.report.facts.record import HostFacts, ModelFacts
from collage_core.contract import Host
from collage_core.ir.io.model_io import external_tensors, load_model, model_to_bytes


def host_facts(host: Host) -> HostFacts:
    """The machine, as the record keeps it."""
    return HostFacts(
        system=host.system,
        cpu=host.cpu,
        physical_cores=host.physical_cores,
        memory_bytes=host.memory_bytes,
        python=platform.python_version(),
    )


def opened(model: str | os.PathLike[str] | onnx_ir.Model) -> tuple[onnx_ir.Model, str, str]:
    """A model with its name and the SHA-256 of its file; of its serialised form if it comes from memory.

    Raises:
        ModelError: If the file is missing or not a model.
    """
    if isinstance(model, onnx_ir.Model):
        return model, model.graph.name or "model", hashlib.sha256(model_to_bytes(model)).hexdigest()
    path = Path(model)
    return load_model(path), path.name, file_sha256(path)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def external_files(model: onnx_ir.Model) -> list[Path]:
    """The files, beside its own, that hold weights of a model, sorted."""
    return sorted({Path(tensor.base_dir, tensor.location) for tensor in external_tensors(model)})


def model_facts(name: str, sha256: str, given: onnx_ir.Model, prepared: onnx_ir.Model) -> ModelFacts:
    """A model, as the record keeps it."""
    return ModelFacts(
        name=name,
        sha256=sha256,
        nodes=sum(1 for _ in prepared.graph),
        nodes_as_given=sum(1 for _ in given.graph),
    )
