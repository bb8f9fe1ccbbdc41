"""What decides the outcome of an optimization, but for what the tuning database holds, as one hash."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx_ir

from collage.control.metric import metric_version
from collage.devices.this_host import this_host
from collage.installed_code import OWN, code_hash, entry_packages
from collage.options import OptimizeOptions
from collage.setup.facts import external_files, file_sha256
from collage.setup.inputs.calibration import sample_files
from collage_core.ir.io.model_io import load_model

_ASIDE = frozenset(
    {
        "tuning_db",
        "runner",
        "split_hosts",
        "inputs",
        "calibration",
        "metric",
        "labelled",
        "load_plan",
        "fusion_specs",
        "retry_failed",
    }
)
"""Options that count otherwise: by the content of a file, or not at all."""


def origin_of(model: str | os.PathLike[str] | onnx_ir.Model, options: OptimizeOptions) -> str | None:
    """Return a hash of model, options, machine and installed software.

    Of other distributions the version counts. Of this product and its plugins, which may be installed from a source
    tree, the content of each file counts. Environment variables, and libraries that the system brings, do not.

    Args:
        model: An ONNX file, or a model in memory.
        options: What to do.

    Returns:
        The hash; None where it is not known: with a budget a second run goes on where the first ended, and models in
        memory, rules and arrays of the caller's own have no files.

    Raises:
        ModelError: If the model's file is missing or not a model.
        OSError: If another file cannot be read.
    """
    if isinstance(model, onnx_ir.Model) or isinstance(options.inputs, Mapping):
        return None
    samples = (options.calibration, options.labelled)
    if not all(isinstance(each, str | os.PathLike | None) for each in samples) or callable(options.metric):
        return None
    if options.budget_s is not None or options.fusion_specs:
        return None
    path = Path(model)
    files = [path, *external_files(load_model(path))]
    files += [Path(each) for each in (options.inputs, options.load_plan) if each is not None]
    host = this_host()
    what = {
        "model": path.name,
        "files": [file_sha256(each) for each in files],
        "given": [options.inputs is not None, options.load_plan is not None],
        "samples": [
            [file_sha256(file) for file in sample_files(each)] if isinstance(each, str | os.PathLike) else None
            for each in samples
        ],
        "metric": None
        if options.metric is None
        else [metric_version(options.metric), options.metric.rpartition(":")[2]],
        "options": {
            field.name: getattr(options, field.name)
            for field in dataclasses.fields(options)
            if field.name not in _ASIDE
        },
        "host": host.fingerprint_for(*(device.name for device in host.devices)),
        "python": sys.version,
        "installed": sorted({f"{each.name} {each.version}" for each in importlib.metadata.distributions()}),
        "code": list(_code()),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def _code() -> Iterator[tuple[str, str]]:
    """Yield name and hash of this product's import packages and of plugins'."""
    packages = {package for each in importlib.metadata.distributions() for package in entry_packages(each)}
    for package in sorted({*OWN, *packages}):
        yield package, code_hash(package)
