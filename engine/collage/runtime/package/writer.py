"""Write a package."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from collage.documents.artifact_manifest import ArtifactManifest
from collage.errors import PackageError
from collage.runtime.package.archive import ArchiveWriter
from collage.runtime.package.manifest import (
    ARTIFACTS,
    MANIFEST,
    MODEL,
    RECORD,
    WEIGHTS,
    Library,
    Manifest,
    PackagedKernel,
    PlanEntry,
    Weight,
)
from collage.runtime.package.narrowed import documents_for
from collage.runtime.package.reader import Package
from collage_core.contract import Artifact, Json, Target, weight_named
from collage_core.hookspecs import ENTRY_POINT_GROUP
from collage_core.ir.values.content import constant_of, tensor_content_hash
from collage_core.ir.values.size_range import Shape
from collage_core.ir.values.symbolic_sizes import input_shapes
from collage_core.passes.call_sites import CallSite, call_sites

INLINE_BYTES = 1024
"""Size up to which tensors stay inside `model.onnx`: shapes and axes must be readable without other entries."""


def save_package(
    path: str | os.PathLike[str],
    model: ir.Model,
    artifacts: Mapping[str, Artifact],
    targets: Mapping[str, Target],
    record: Json,
    *,
    threads: int,
    model_name: str,
    model_sha256: str,
    distributions: Sequence[str] = (),
    created: datetime.datetime | None = None,
) -> str:
    """Write a package, whole or not at all.

    Args:
        path: The file to write; an older one is replaced when the new one is complete.
        model: The partitioned model. It stays as it is.
        artifacts: Artifact of each call site.
        targets: Target of each call site.
        record: What the optimisation found out; kept as it is.
        threads: CPU threads the kernels are meant to use.
        model_name: Name of the model the package is made from.
        model_sha256: Of that model's file, in hexadecimal.
        distributions: Distributions to name with version and licence, besides those that bring the toolchains and
            those the artifacts require.
        created: When; None for now.

    Returns:
        Its `Package.digest`, by which the caller may have it trusted.

    Raises:
        PackageError: If the file cannot be written, or a call site has no artifact, or a target the model does not
            say.
    """
    target = Path(path)
    sites = call_sites(model)
    for site in sites:
        if site.name not in artifacts or site.name not in targets:
            raise PackageError(str(target), f"call site {site.name!r} of {site.target} has no artifact or no target")
        if targets[site.name].name != site.target:
            given = targets[site.name].name
            raise PackageError(str(target), f"call site {site.name!r} is of {site.target} in the model, not of {given}")
    try:
        with ArchiveWriter(target) as archive:
            kept = _Weights(archive)
            archive.add(MODEL, _model_bytes(model, kept))
            for site in sites:
                _keep_wanted(kept, site, artifacts[site.name], target)
            files = _Artifacts(archive)
            packaged = {
                site.name: PackagedKernel(
                    target=targets[site.name].name, artifact=files.add(site.name, artifacts[site.name])
                )
                for site in sites
            }
            archive.add(RECORD, json.dumps(record, indent=1, allow_nan=False).encode())
            required = {need.name for site in sites for need in artifacts[site.name].requires if need.kind == "library"}
            manifest = Manifest(
                collage_version=_version("collage-core"),
                created=(created or datetime.datetime.now(datetime.UTC)).isoformat(timespec="seconds"),
                model_name=model_name,
                model_sha256=model_sha256,
                threads=threads,
                targets={targets[site.name].name: targets[site.name] for site in sites},
                plans=(PlanEntry(model=MODEL, record=RECORD, input_shapes=input_shapes(model), kernels=packaged),),
                weights=kept.weights,
                libraries=_libraries(
                    {"collage-core", *distributions, *required, *_distributions(targets[site.name] for site in sites)}
                ),
                entries=dict(archive.entries),
            )
            archive.add(MANIFEST, manifest.to_json())
            digest = archive.entries[MANIFEST].sha256
    except OSError as error:
        raise PackageError(str(target), error.strerror or str(error)) from error
    return digest


def join_packages(
    path: str | os.PathLike[str],
    packages: Sequence[Package],
    shapes: Sequence[Mapping[str, Shape]] | None = None,
) -> str:
    """Write the plans of several packages of one model as one package, whole or not at all.

    Weights, and files of artifacts, that several have are in it once.

    Args:
        path: The file to write; an older one is replaced when the new one is complete.
        packages: Packages of one model, made with one number of threads, of different input shapes.
        shapes: For each of these, which have one plan then, the shapes that it is for from now on: with ranges
            within its own. As they are if None.

    Returns:
        Its `Package.digest`.

    Raises:
        PackageError: If the file cannot be written.
    """
    target = Path(path)
    manifests = [package.manifest for package in packages]
    try:
        with ArchiveWriter(target) as archive:
            kept, files = _Weights(archive), _Artifacts(archive)
            entries: list[PlanEntry] = []
            plans = [plan for package in packages for plan in package.plans]
            for plan, own in zip(plans, shapes or [plan.input_shapes for plan in plans], strict=True):
                number = len(entries)
                model, record = (name if number == 0 else _numbered(name, number) for name in (MODEL, RECORD))
                for name, data in zip((model, record), documents_for(plan, own), strict=True):
                    archive.add(name, data)
                kernels = {}
                for site, target_of in plan.targets.items():
                    folder = site if number == 0 else f"{number}/{site}"
                    artifact = files.add(folder, plan.artifacts[site])
                    kernels[site] = PackagedKernel(target=target_of.name, artifact=artifact)
                known = {name: own.get(name, shape) for name, shape in plan.input_shapes.items()}
                entries.append(PlanEntry(model=model, record=record, input_shapes=known, kernels=kernels))
            for package in packages:
                for key in package.manifest.weights:
                    kept.add(package.tensor(key))
            libraries = {library.name: library for each in manifests for library in each.libraries}
            manifest = dataclasses.replace(
                manifests[0],
                targets={name: target for each in manifests for name, target in each.targets.items()},
                plans=tuple(entries),
                weights=kept.weights,
                libraries=tuple(libraries[name] for name in sorted(libraries)),
                entries=dict(archive.entries),
            )
            archive.add(MANIFEST, manifest.to_json())
            return archive.entries[MANIFEST].sha256
    except OSError as error:
        raise PackageError(str(target), error.strerror or str(error)) from error


def _numbered(name: str, number: int) -> str:
    """Return the name of an entry of a plan that is not the first.

    Examples:
        >>> _numbered("model.onnx", 2)
        'model-2.onnx'
    """
    stem, dot, suffix = name.partition(".")
    return f"{stem}-{number}{dot}{suffix}"


class _Weights:
    """Tensors added to the archive, each once however many values or artifacts hold it."""

    def __init__(self, archive: ArchiveWriter) -> None:
        self._archive = archive
        self.weights: dict[str, Weight] = {}

    def add(self, tensor: ir.TensorProtocol) -> str:
        """Add a tensor unless an equal one is there; its content hash."""
        key = tensor_content_hash(tensor)
        if key not in self.weights:
            self._archive.add(WEIGHTS + key, _raw(tensor))
            self.weights[key] = Weight(dtype=tensor.dtype.name, shape=tuple(tensor.shape.numpy()))
        return key


def _raw(tensor: ir.TensorProtocol) -> bytes | memoryview:
    """Return a tensor's bytes as in ONNX external data: little-endian, types below 8 bits packed."""
    if tensor.dtype.bitwidth >= 8 and np.little_endian:
        return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8).data
    return tensor.tobytes()


def _model_bytes(model: ir.Model, kept: _Weights) -> bytes:
    copy = model.clone()
    for value in copy.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.dtype == ir.DataType.STRING or tensor.nbytes <= INLINE_BYTES:
            continue
        key = kept.add(tensor)
        value.const_value = ir.ExternalTensor(
            WEIGHTS + key, 0, tensor.nbytes, tensor.dtype, shape=ir.Shape(tensor.shape.numpy()), name=value.name or ""
        )
    proto = ir.serde.serialize_model(copy)
    return bytes(proto.SerializeToString())


def _keep_wanted(kept: _Weights, site: CallSite, artifact: Artifact, path: Path) -> None:
    """Add the weights an artifact asks for that the model keeps inline, or not at all."""
    wanted = {weight_named(key)[0] for key in artifact.constants.values()} - set(kept.weights)
    if not wanted:
        return
    for value in site.kernel_function().model.graph.initializers.values():
        tensor = constant_of(value)
        if tensor is not None and tensor_content_hash(tensor) in wanted:
            wanted.discard(kept.add(tensor))
    if wanted:
        raise PackageError(
            str(path), f"the artifact of call site {site.name!r} asks for weights its function does not have"
        )


class _Artifacts:
    """Files of artifacts added to the archive, each content once."""

    def __init__(self, archive: ArchiveWriter) -> None:
        self._archive = archive
        self._by_content: dict[str, str] = {}

    def add(self, folder: str, artifact: Artifact) -> ArtifactManifest:
        """Add the files of an artifact in a folder, and return its manifest."""
        files = {}
        for name, data in sorted(artifact.files.items()):
            digest = hashlib.sha256(data).hexdigest()
            if digest not in self._by_content:
                self._by_content[digest] = f"{ARTIFACTS}{folder}/{name}"
                self._archive.add(self._by_content[digest], data, digest)
            files[name] = self._by_content[digest]
        return ArtifactManifest.of(artifact, files)


def _distributions(targets: Iterable[Target]) -> set[str]:
    """Return the names of the distributions that provide the targets' toolchains.

    A toolchain that was not installed from a distribution has none.
    """
    names = {target.toolchain for target in targets}
    entries = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    return {entry.dist.name for entry in entries if entry.name in names and entry.dist is not None}


def _libraries(names: Iterable[str]) -> tuple[Library, ...]:
    found = []
    for name in sorted(names):
        try:
            metadata = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        fields = metadata.json
        stated = str(fields.get("license_expression") or fields.get("license") or "").strip().splitlines()
        classifiers = "; ".join(line for line in fields.get("classifier", ()) if line.startswith("License ::"))
        # the old field often holds the whole text, whose first line may be a copyright notice
        license_ = stated[0] if len(stated) == 1 else classifiers or next(iter(stated), "")
        found.append(Library(name=name, version=metadata["Version"], license=license_))
    return tuple(found)


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
