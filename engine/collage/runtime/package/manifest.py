"""The package manifest, `manifest.json`."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from typing import Any

import cattrs
import onnx_ir as ir
from cattrs.v import format_exception

from collage.documents.artifact_manifest import ArtifactManifest
from collage.documents.strict import strict_converter
from collage.errors import NotAPackageError, PackageDamagedError, PackageVersionError
from collage_core.contract import Target
from collage_core.contract.names import is_plain_name
from collage_core.ir.values.size_range import Shape

FORMAT = "collage-package"
SCHEMA_VERSION = 3

MANIFEST = "manifest.json"
MODEL = "model.onnx"
RECORD = "record.json"
"""Names of the first plan's entries."""
WEIGHTS = "weights/"
ARTIFACTS = "artifacts/"

JSON_LIMIT_BYTES = 64 << 20
"""Largest manifest: parsed JSON takes a multiple of its size; a plan of 50,000 kernels stays below a third."""

MOST_THREADS = 4096
"""Largest plausible number of threads; starting more would bring this machine down."""

MOST_PLANS = 256
"""Most plans of one package."""

MOST_AXES = 64
"""Most axes of a tensor, the limit of NumPy arrays."""

MOST_ELEMENTS = 1 << 40
"""Most elements of one tensor. Extents of 0 are skipped: NumPy refuses such shapes if the others are too large."""

_WITHOUT_BYTES = frozenset({"UNDEFINED", "STRING"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the archive.

    Attributes:
        size: Size in bytes.
        sha256: SHA-256 of its content, in hexadecimal.
    """

    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A tensor stored under `weights/`, named by its content hash.

    Attributes:
        dtype: ONNX name of the element type, e.g. `"FLOAT"`.
        shape: Its shape.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in ir.DataType.__members__ or self.dtype in _WITHOUT_BYTES:
            raise ValueError(f"{self.dtype[:40]!r} is no type of elements that are kept as bytes")
        if len(self.shape) > MOST_AXES:  # looked at before anything is multiplied: long products take long
            raise ValueError(f"a tensor has up to {MOST_AXES} axes, not {len(self.shape)}")
        if min(self.shape, default=0) < 0 or math.prod(extent or 1 for extent in self.shape) > MOST_ELEMENTS:
            raise ValueError("a tensor's extents are not negative, and their product is up to 2^40")

    @property
    def nbytes(self) -> int:
        """Size of the tensor in bytes; elements below 8 bits are packed."""
        return -(-math.prod(self.shape) * self.data_type.bitwidth // 8)

    @property
    def data_type(self) -> ir.DataType:
        """The element type."""
        return ir.DataType[self.dtype]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PackagedKernel:
    """What a call site runs.

    Attributes:
        target: Name of its target.
        artifact: Its artifact. The files are entries of the archive; call sites with equal files share entries.
    """

    target: str
    artifact: ArtifactManifest


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PlanEntry:
    """One plan of a package: the model for inputs of certain shapes.

    Attributes:
        model: Name of the entry with its partitioned model.
        record: Name of the entry with what its optimisation found out.
        input_shapes: Shape of each input that has a static one, by name.
        kernels: By call site.
    """

    model: str
    record: str
    input_shapes: dict[str, Shape]
    kernels: dict[str, PackagedKernel]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A distribution the artifacts were built with, listed for redistribution of the package.

    Attributes:
        name: Its name.
        version: Its version.
        license: As its metadata states it; empty if it does not.
    """

    name: str
    version: str
    license: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The content of `manifest.json`.

    Attributes:
        format: Always `FORMAT`.
        schema_version: Of the format.
        collage_version: Version that wrote it.
        created: When, in ISO 8601 with time zone.
        model_name: Name of the model the package was made from.
        model_sha256: Of that model's file, in hexadecimal.
        threads: CPU threads it was measured with.
        targets: By name.
        plans: One for each set of input shapes.
        weights: By content hash; all plans share them.
        libraries: What the artifacts were built with.
        entries: Every other entry of the archive, by name.
    """

    format: str = FORMAT
    schema_version: int = SCHEMA_VERSION
    collage_version: str
    created: str
    model_name: str
    model_sha256: str
    threads: int
    targets: dict[str, Target]
    plans: tuple[PlanEntry, ...]
    weights: dict[str, Weight]
    libraries: tuple[Library, ...]
    entries: dict[str, Entry]

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"{self.threads} is no number of threads")
        if not 1 <= len(self.plans) <= MOST_PLANS:
            raise ValueError(f"{len(self.plans)} is no number of plans")
        if len({tuple(sorted(plan.input_shapes.items())) for plan in self.plans}) < len(self.plans):
            raise ValueError("two plans are for the same shapes")
        if len({frozenset(plan.input_shapes) for plan in self.plans}) > 1:
            raise ValueError("two plans are for different inputs")

    def to_json(self) -> bytes:
        """Serialize the manifest as the bytes of `manifest.json`."""
        return json.dumps(_converter().unstructure(self), indent=1, sort_keys=True, allow_nan=False).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Manifest:
        """Read `manifest.json`.

        Args:
            data: Its bytes.
            path: The package, for messages.

        Raises:
            NotAPackageError: If it is some other manifest.
            PackageVersionError: If its schema version is not the one this code reads.
            PackageDamagedError: If it is not what any version writes.
        """
        loaded = parsed(data, "manifest", path)
        if not isinstance(loaded, dict) or loaded.get("format") != FORMAT:
            raise NotAPackageError(path, f"its manifest does not say that it is a {FORMAT}")
        version = loaded.get("schema_version")
        if type(version) is int and version < 1:
            raise PackageDamagedError(path, f"its schema version is {version}, and the first was 1")
        if type(version) is int and version != SCHEMA_VERSION:
            raise _other_version(path, version, loaded.get("collage_version", "another Collage"))
        try:
            return _converter().structure(loaded, cls)
        except Exception as error:  # cattrs wraps whatever a constructor or a hook raises
            reasons = ""
            if isinstance(error, cattrs.BaseValidationError):
                reasons = "; ".join(cattrs.transform_error(error, format_exception=_in_its_own_words))
            raise PackageDamagedError(path, f"its manifest is malformed: {reasons or error}") from error


def parsed(data: bytes | memoryview, what: str, path: str) -> Any:
    """Parse a JSON entry of a package.

    Args:
        data: Bytes of the entry.
        what: Name of the entry for messages.
        path: Path of the package, for messages.

    Raises:
        PackageDamagedError: If it is not JSON, or exceeds the limits of any valid package.
    """
    if len(data) > JSON_LIMIT_BYTES:
        raise PackageDamagedError(
            path, f"its {what} has {len(data)} bytes, more than the {JSON_LIMIT_BYTES} any package has"
        )
    try:
        return json.loads(bytes(data))
    except (ValueError, RecursionError) as error:
        raise PackageDamagedError(path, f"its {what} is no JSON ({error}); get the file again") from error


def is_safe_name(name: str) -> bool:
    """Return whether an entry's name stays inside the folder it is extracted to, on any system.

    Examples:
        >>> is_safe_name("artifacts/k0001/model.onnx"), is_safe_name("../x"), is_safe_name("/x"), is_safe_name("c:x")
        (True, False, False, False)
    """
    return all(is_plain_name(part) for part in name.split("/"))


def _other_version(path: str, version: int, written_by: Any) -> PackageVersionError:
    advice = "upgrade collage-core" if version > SCHEMA_VERSION else "optimize the model again"
    return PackageVersionError(
        path,
        f"it has schema version {version}, this Collage reads {SCHEMA_VERSION}; "
        f"it was written by {written_by}: {advice}",
    )


@functools.cache  # cattrs compiles code for each class: once, not whenever a package is opened
def _converter() -> cattrs.Converter:
    # what a later minor version adds is ignored
    return strict_converter(forbid_extra_keys=False, detailed_validation=True)


def _in_its_own_words(error: BaseException, kind: type | None) -> str:
    """Return the message of one of our own checks, or cattrs' description of any other error."""
    return str(error) if isinstance(error, TypeError | ValueError) else format_exception(error, kind)
