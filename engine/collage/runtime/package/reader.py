"""Read a package from a mapping of the file, checking each entry when it is first read."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from collage.errors import NotAPackageError, PackageDamagedError, PackageError
from collage.runtime.package.archive import Archive
from collage.runtime.package.manifest import JSON_LIMIT_BYTES, MANIFEST, WEIGHTS, Manifest
from collage.runtime.package.plan import LazyMapping, PackagedPlan, described
from collage_core.contract import weight_named
from collage_core.errors import UsageError
from collage_core.ir.io.replacement import Replacement
from collage_core.ir.values.size_range import Shape


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
        said = archive.intact(MANIFEST, JSON_LIMIT_BYTES)
        self.digest = hashlib.sha256(said).hexdigest()
        self.manifest = Manifest.from_json(said, archive.path)
        self._check()

    @functools.cached_property
    def plans(self) -> tuple[PackagedPlan, ...]:
        """The plans, one for each set of input shapes."""
        return tuple(PackagedPlan(self, self._archive, entry) for entry in self.manifest.plans)

    @property
    def plan(self) -> PackagedPlan:
        """The only plan.

        Raises:
            UsageError: If it has several.
        """
        return self.plan_for({})

    def plan_for(self, input_shapes: Mapping[str, Shape]) -> PackagedPlan:
        """Return the only plan, or of several the one for some inputs' shapes; those not given do not matter.

        Raises:
            UsageError: If it has several plans, and not exactly one of them is for these shapes.
        """
        if len(self.plans) == 1:
            return self.plans[0]
        fits = [plan for plan in self.plans if input_shapes.items() <= plan.input_shapes.items()]
        fits = fits or [plan for plan in self.plans if plan.holds(input_shapes)]
        if len(fits) != 1:
            how = "; choose one with --input-shapes" if fits else ""
            which = "several plans" if fits else f"no plan for {described(input_shapes)}"
            raise UsageError(f"{self.path} has {which}: it has plans for {self.described_shapes()}{how}")
        return fits[0]

    def described_shapes(self) -> str:
        """Return the shapes that it has plans for, in words."""
        return "; ".join(described(plan.input_shapes) for plan in self.plans)

    @property
    def weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Weights by content hash: read-only views of the file.

        Raises:
            PackageDamagedError: On reading, if an entry is missing or its checksum does not match.
        """
        return LazyMapping(self.manifest.weights, lambda key: self.tensor(key).numpy())

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

    def _check(self) -> None:
        """Check, before anything is used, that every name in the manifest is an entry of the right size."""
        manifest = self.manifest
        needed = {WEIGHTS + key for key in manifest.weights}
        needed.update(name for plan in manifest.plans for name in (plan.model, plan.record))
        for site, kernel in (item for plan in manifest.plans for item in plan.kernels.items()):
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

    def tensor(self, key: str) -> ir.TensorProtocol:
        """Return a weight by its content hash: a view of the file."""
        weight = self.manifest.weights[key]
        raw = np.frombuffer(self._archive.read(WEIGHTS + key, self.manifest.entries), np.uint8)
        if weight.data_type.bitwidth < 8:
            return ir.PackedTensor(raw, weight.data_type, shape=weight.shape, name=key)
        array = raw.view(weight.data_type.numpy().newbyteorder("<")).reshape(weight.shape)
        if not array.flags.aligned:  # another ZIP tool wrote the archive anew; kernels read by the word
            array = array.copy()
            array.flags.writeable = False
        return ir.Tensor(array, weight.data_type, shape=ir.Shape(weight.shape), name=key)


def load_package(path: str | os.PathLike[str]) -> Package:
    """Open a package; weights and artifacts are read when they are asked for.

    Raises:
        PackageError: If it cannot be opened.
        NotAPackageError: If it is something else.
        PackageVersionError: If a newer or an older Collage wrote it, in another format.
        PackageDamagedError: If it is truncated or altered.
    """
    return Package(Archive(Path(path)))
