"""Read a package lazily from a mapping of the file, checking each entry when it is first read."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import onnx_ir as ir

from collage.errors import NotAPackageError, PackageDamagedError, PackageError
from collage.runtime.package.archive import Archive
from collage.runtime.package.manifest import MANIFEST, MODEL, RECORD, WEIGHTS, Manifest, parsed
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Artifact, Target, weight_named
from collage_core.errors import ModelError
from collage_core.ir.io.model_io import external_tensors, save_model
from collage_core.ir.io.replacement import Replacement
from collage_core.passes.call_sites import call_sites

T = TypeVar("T")


class LazyMapping(Mapping[str, T]):
    """A mapping whose values are made on each access and not kept."""

    def __init__(self, names: Mapping[str, Any], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # a look into the names must not read the value

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Package:
    """An open package. Its tensors and bytes are views of the mapped file, which lives as long as any of them.

    Args:
        archive: The file.

    Attributes:
        path: File it was read from.
        manifest: Its manifest.
        digest: SHA-256 of its manifest, in hexadecimal. The manifest has the SHA-256 of every entry, and nothing is
            used that does not match: packages of one digest are one package, wherever the file lies.
    """

    def __init__(self, archive: Archive) -> None:
        if MANIFEST not in archive:
            raise NotAPackageError(archive.path, f"it has no {MANIFEST}, so it is no Collage package")
        self.path = archive.path
        self._archive = archive
        said = archive.intact(MANIFEST)
        self.digest = hashlib.sha256(said).hexdigest()
        self.manifest = Manifest.from_json(said, archive.path)
        self._check()

    @property
    def artifacts(self) -> Mapping[str, Artifact]:
        """Artifact of each call site, read on access.

        Raises:
            PackageDamagedError: On reading, if an entry is missing or its checksum does not match.
        """
        return LazyMapping(self.manifest.kernels, self._artifact)

    @property
    def targets(self) -> Mapping[str, Target]:
        """Target of each call site."""
        return {site: self.manifest.targets[kernel.target] for site, kernel in self.manifest.kernels.items()}

    @property
    def weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Weights by content hash: read-only views of the file.

        Raises:
            PackageDamagedError: On reading, if an entry is missing or its checksum does not match.
        """
        return LazyMapping(self.manifest.weights, lambda key: self._tensor(key).numpy())

    def verify(self) -> None:
        """Check the content of every entry.

        Raises:
            PackageDamagedError: If a checksum does not match.
        """
        for name in self._archive:
            if name != MANIFEST:
                self._archive.read(name, self.manifest.entries)

    def save_copy(self, path: str | os.PathLike[str]) -> None:
        """Write the package to another file, atomically.

        Raises:
            PackageError: If it cannot be written.
        """
        try:
            with Replacement(path) as file:
                file.stream.write(self._archive.content)
        except OSError as error:
            raise PackageError(str(path), error.strerror or str(error)) from error

    @functools.cached_property
    def record(self) -> Any:
        """Record of the optimisation, as JSON."""
        return parsed(self._archive.read(RECORD, self.manifest.entries), RECORD, self.path)

    @functools.cached_property
    def model(self) -> ir.Model:
        """The partitioned model; its large weights are read from the package on access.

        Raises:
            PackageDamagedError: If it is not an ONNX model, refers to weights the package does not have, or calls
                kernels without an artifact in the manifest.
        """
        data = self._archive.read(MODEL, self.manifest.entries)
        with TemporaryFolder() as folder:
            file = folder / MODEL
            file.write_bytes(data)
            try:
                model = ir.load(file)
            except Exception as error:  # protobuf's and the IR's own errors
                raise PackageDamagedError(self.path, f"its {MODEL} is no ONNX model: {error}") from error
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = self._lazy(tensor)
        for tensor in external_tensors(model):  # in functions, branches and attributes, where no package has one
            raise self._foreign(tensor)
        self._check_calls(model)
        return model

    def _check_calls(self, model: ir.Model) -> None:
        """Check, before a kernel is loaded, that the model's call sites match those of the manifest."""
        try:
            sites = {site.name: site for site in call_sites(model)}
        except ModelError as error:
            raise PackageDamagedError(self.path, f"its {MODEL} is not as a partitioning leaves one: {error}") from error
        targets = self.targets
        here, there = "model and not in its manifest", "manifest and not in its model"
        for name in sorted(sites.keys() ^ self.manifest.kernels.keys()):
            raise PackageDamagedError(self.path, f"call site {name!r} is in its {here if name in sites else there}")
        for name, site in sites.items():
            target = targets[name]
            if (site.toolchain, site.target) != (target.toolchain, target.name):
                said = site.target if site.target != target.name else site.toolchain
                raise PackageDamagedError(
                    self.path, f"call site {name!r} is of {said!r} in its model, of {target.name!r} in its manifest"
                )

    def _check(self) -> None:
        """Check, before anything is used, that every name in the manifest is an entry of the right size."""
        manifest = self.manifest
        needed = {MODEL, RECORD, *(WEIGHTS + key for key in manifest.weights)}
        for site, kernel in manifest.kernels.items():
            needed.update(kernel.artifact.files.values())
            if kernel.target not in manifest.targets:
                raise PackageDamagedError(self.path, f"call site {site!r} is of an unknown target {kernel.target!r}")
            for key in kernel.artifact.constants.values():
                if weight_named(key)[0] not in manifest.weights:
                    raise PackageDamagedError(self.path, f"call site {site!r} asks for a weight that is not there")
        for name in needed:
            if name not in manifest.entries or name not in self._archive:
                raise PackageDamagedError(self.path, f"it lacks the entry {name!r}")
        for name in self._archive:
            if name == MANIFEST:
                continue
            if name not in manifest.entries:
                raise PackageDamagedError(self.path, f"its manifest does not know the entry {name!r}")
            size, said = len(self._archive.raw(name)), manifest.entries[name].size
            if size != said:
                raise PackageDamagedError(self.path, f"entry {name!r} has {size} bytes, its manifest says {said}")
        for key, weight in manifest.weights.items():
            if manifest.entries[WEIGHTS + key].size != weight.nbytes:
                raise PackageDamagedError(self.path, f"weight {key} is not as large as its shape says")

    def _artifact(self, site: str) -> Artifact:
        said, entries = self.manifest.kernels[site].artifact, self.manifest.entries
        # each entry once, however many names it has: a small file must not become a large amount of memory
        held = {file: self._archive.copy(file, entries) for file in set(said.files.values())}
        return said.artifact({name: held[file] for name, file in said.files.items()})

    def _tensor(self, key: str) -> ir.TensorProtocol:
        weight = self.manifest.weights[key]
        raw = np.frombuffer(self._archive.read(WEIGHTS + key, self.manifest.entries), np.uint8)
        if weight.data_type.bitwidth < 8:
            return ir.PackedTensor(raw, weight.data_type, shape=weight.shape, name=key)
        array = raw.view(weight.data_type.numpy().newbyteorder("<")).reshape(weight.shape)
        if not array.flags.aligned:  # another ZIP tool wrote the archive anew; kernels read by the word
            array = array.copy()
            array.flags.writeable = False
        return ir.Tensor(array, weight.data_type, shape=ir.Shape(weight.shape), name=key)

    def _lazy(self, tensor: ir.ExternalTensor) -> ir.LazyTensor:
        location = os.fspath(tensor.location)
        key = location.removeprefix(WEIGHTS)
        weight = self.manifest.weights.get(key)
        whole = location == WEIGHTS + key and not tensor.offset
        if weight is None or not whole or (weight.data_type, weight.shape) != (tensor.dtype, tuple(tensor.shape)):
            raise self._foreign(tensor)
        return ir.LazyTensor(
            functools.partial(self._tensor, key),
            tensor.dtype,
            shape=ir.Shape(weight.shape),
            name=tensor.name,
        )

    def _foreign(self, tensor: ir.ExternalTensor) -> PackageDamagedError:
        location = os.fspath(tensor.location)
        return PackageDamagedError(
            self.path, f"its model takes weight {tensor.name!r} from {location!r}, which the package does not have"
        )


def load_package(path: str | os.PathLike[str]) -> Package:
    """Open a package; weights and artifacts are read when they are asked for.

    Raises:
        PackageError: If it cannot be opened.
        NotAPackageError: If it is something else.
        PackageVersionError: If a newer or an older Collage wrote it, in another format.
        PackageDamagedError: If it is truncated or altered.
    """
    return Package(Archive(Path(path)))


def export_model(package: Package, path: str | os.PathLike[str]) -> None:
    """Write the partitioned model of a package as standard ONNX with its weights.

    Raises:
        ModelFileError: If the file cannot be written.
        PackageDamagedError: If the package is not sound.
    """
    save_model(package.model, path)
