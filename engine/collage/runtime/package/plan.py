"""One plan of a package: its partitioned model, the artifact of each call site, and its record, read when needed."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import onnx_ir as ir

from collage.errors import PackageDamagedError
from collage.runtime.package.archive import Archive
from collage.runtime.package.manifest import WEIGHTS, Manifest, PlanEntry, parsed
from collage.temporary_folders import TemporaryFolder
from collage_core.contract import Artifact, Requirement, Target
from collage_core.errors import ModelError
from collage_core.ir.io.model_io import external_tensors
from collage_core.ir.values.size_range import Shape, shape_within
from collage_core.ir.values.symbolic_sizes import input_shapes
from collage_core.passes.call_sites import call_sites

if TYPE_CHECKING:
    from collage.runtime.package.reader import Package

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


class PackagedPlan:
    """One plan of an open package.

    Args:
        package: The package.
        archive: Its file.
        entry: What its manifest says of the plan.

    Attributes:
        package: As given.
    """

    def __init__(self, package: Package, archive: Archive, entry: PlanEntry) -> None:
        self.package = package
        self._archive = archive
        self._entry = entry

    @property
    def path(self) -> str:
        """File of the package."""
        return self.package.path

    @property
    def manifest(self) -> Manifest:
        """Manifest of the package."""
        return self.package.manifest

    @property
    def input_shapes(self) -> Mapping[str, Shape]:
        """Shape of each input that has a static one, by name."""
        return self._entry.input_shapes

    def holds(self, input_shapes: Mapping[str, Shape]) -> bool:
        """Return whether some inputs' shapes are among those that it is for."""
        known = self.input_shapes
        return all(name in known and shape_within(shape, known[name]) for name, shape in input_shapes.items())

    @property
    def artifacts(self) -> Mapping[str, Artifact]:
        """Artifact of each call site, read on access.

        Raises:
            PackageDamagedError: On reading, if an entry is missing or its checksum does not match.
        """
        return LazyMapping(self._entry.kernels, self._artifact)

    def requires(self, site: str) -> tuple[Requirement, ...]:
        """Return what the artifact of a call site requires, without reading the artifact."""
        return self._entry.kernels[site].artifact.requires

    @functools.cached_property
    def targets(self) -> Mapping[str, Target]:
        """Target of each call site."""
        return {site: self.manifest.targets[kernel.target] for site, kernel in self._entry.kernels.items()}

    @property
    def weights(self) -> Mapping[str, np.ndarray[Any, Any]]:
        """Weights of the package by content hash: read-only views of the file."""
        return self.package.weights

    def documents(self) -> tuple[memoryview, memoryview]:
        """Return the bytes of its model and of its record, as they are in the file."""
        names = (self._entry.model, self._entry.record)
        model, record = (self._archive.read(name, self.manifest.entries) for name in names)
        return model, record

    @functools.cached_property
    def record(self) -> Any:
        """Record of the optimisation, as JSON."""
        return parsed(self._archive.read(self._entry.record, self.manifest.entries), self._entry.record, self.path)

    @functools.cached_property
    def model(self) -> ir.Model:
        """The partitioned model; its large weights are read from the package on access.

        Raises:
            PackageDamagedError: If it is not an ONNX model, refers to weights the package does not have, has inputs of
                other shapes than its manifest says, or calls kernels without an artifact in the manifest.
        """
        data = self._archive.read(self._entry.model, self.manifest.entries)
        with TemporaryFolder() as folder:
            file = folder / "model.onnx"
            file.write_bytes(data)
            try:
                model = ir.load(file)
            except Exception as error:  # protobuf's and the IR's own errors
                raise PackageDamagedError(self.path, f"its {self._entry.model} is no ONNX model: {error}") from error
        for value in model.graph.initializers.values():
            tensor = value.const_value
            if isinstance(tensor, ir.ExternalTensor):
                value.const_value = self._lazy(tensor)
        for tensor in external_tensors(model):  # in functions, branches and attributes, where no package has one
            raise self._foreign(tensor)
        if input_shapes(model) != self.input_shapes:
            raise PackageDamagedError(self.path, f"inputs of its {self._entry.model} are not of the manifest's shapes")
        self._check_calls(model)
        return model

    def _check_calls(self, model: ir.Model) -> None:
        """Check, before a kernel is loaded, that the model's call sites match those of the manifest."""
        file = self._entry.model
        try:
            sites = {site.name: site for site in call_sites(model)}
        except ModelError as error:
            raise PackageDamagedError(self.path, f"its {file} is not as a partitioning leaves one: {error}") from error
        targets = self.targets
        here, there = "model and not in its manifest", "manifest and not in its model"
        for name in sorted(sites.keys() ^ self._entry.kernels.keys()):
            raise PackageDamagedError(self.path, f"call site {name!r} is in its {here if name in sites else there}")
        for name, site in sites.items():
            target = targets[name]
            if (site.toolchain, site.target) != (target.toolchain, target.name):
                said = site.target if site.target != target.name else site.toolchain
                raise PackageDamagedError(
                    self.path, f"call site {name!r} is of {said!r} in its model, of {target.name!r} in its manifest"
                )

    def _artifact(self, site: str) -> Artifact:
        said, entries = self._entry.kernels[site].artifact, self.manifest.entries
        # each entry once, however many names it has: a small file must not become a large amount of memory
        held = {file: self._archive.copy(file, entries) for file in set(said.files.values())}
        return said.artifact({name: held[file] for name, file in said.files.items()})

    def _lazy(self, tensor: ir.ExternalTensor) -> ir.LazyTensor:
        location = os.fspath(tensor.location)
        key = location.removeprefix(WEIGHTS)
        weight = self.manifest.weights.get(key)
        whole = location == WEIGHTS + key and not tensor.offset
        if weight is None or not whole or (weight.data_type, weight.shape) != (tensor.dtype, tuple(tensor.shape)):
            raise self._foreign(tensor)
        return ir.LazyTensor(
            functools.partial(self.package.tensor, key),
            tensor.dtype,
            shape=ir.Shape(weight.shape),
            name=tensor.name,
        )

    def _foreign(self, tensor: ir.ExternalTensor) -> PackageDamagedError:
        location = os.fspath(tensor.location)
        return PackageDamagedError(
            self.path, f"its model takes weight {tensor.name!r} from {location!r}, which the package does not have"
        )


def described(input_shapes: Mapping[str, Shape]) -> str:
    """Return shapes as `--input-shapes` takes them.

    Examples:
        >>> described({"x": (1, 3), "n": ()})
        'x:[1,3] n:[]'
    """
    return " ".join(f"{name}:[{','.join(map(str, shape))}]" for name, shape in input_shapes.items())
