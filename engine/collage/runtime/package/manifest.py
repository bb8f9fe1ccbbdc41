"""What a package says about itself: `manifest.json`."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Mapping
from typing import Any

import cattrs
import cattrs.preconf.json
import onnx_ir as ir
from cattrs.v import format_exception

from collage.errors import NotAPackageError, PackageDamagedError, PackageVersionError
from collage_core.contract import Artifact, Requirement, Target, weight_named
from collage_core.contract.names import is_plain_name

FORMAT = "collage-package"
SCHEMA_VERSION = 1

MANIFEST = "manifest.json"
MODEL = "model.onnx"
RECORD = "record.json"
WEIGHTS = "weights/"
ARTIFACTS = "artifacts/"

JSON_LIMIT_BYTES = 64 << 20
"""What JSON expands to in memory is a multiple of its size; a plan of 50,000 kernels stays below a third of this."""

MOST_THREADS = 4096
"""More threads than this are no plan for any machine, and starting them would bring this one down."""

MOST_AXES = 64
"""As many as a NumPy array can have."""

MOST_ELEMENTS = 1 << 40
"""Of one tensor. Extents of 0 do not count: NumPy refuses even such shapes when the others are too large."""

_WITHOUT_BYTES = frozenset({"UNDEFINED", "STRING"})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the archive.

    Attributes:
        size: Its bytes.
        sha256: Of its content, in hexadecimal.
    """

    size: int
    sha256: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """A tensor stored under `weights/`, named by its content hash.

    Attributes:
        dtype: ONNX name of the element type, e.g. `"FLOAT"`.
        shape: Its extents.
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
        """Bytes of the tensor, several elements to a byte below 8 bits."""
        return -(-math.prod(self.shape) * self.data_type.bitwidth // 8)

    @property
    def data_type(self) -> ir.DataType:
        """The element type."""
        return ir.DataType[self.dtype]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PackagedArtifact:
    """An artifact whose files are entries of the archive; see `contract.Artifact` for the other attributes.

    Attributes:
        target: Name of its target.
        files: Entry by file name; call sites with equal files share entries.
    """

    target: str
    files: dict[str, str]
    metadata: dict[str, Any]
    requires: tuple[Requirement, ...]
    constants: dict[str, str]
    workspace_bytes: int
    variant: str
    capturable: bool
    deterministic: bool
    dynamic: bool

    def __post_init__(self) -> None:
        if self.workspace_bytes < 0:
            raise ValueError(f"{self.workspace_bytes} is no size of a workspace")
        for key in self.constants.values():
            weight_named(key)
        for name in self.files:
            if not is_plain_name(name):  # plugins write files under these names when they load
                raise ValueError(f"{name[:200]!r} is no plain file name")

    @classmethod
    def of(cls, artifact: Artifact, target: str, files: Mapping[str, str]) -> PackagedArtifact:
        """The manifest's words for an artifact."""
        return cls(
            target=target,
            files=dict(files),
            metadata=dict(artifact.metadata),
            requires=artifact.requires,
            constants=dict(artifact.constants),
            workspace_bytes=artifact.workspace_bytes,
            variant=artifact.variant,
            capturable=artifact.capturable,
            deterministic=artifact.deterministic,
            dynamic=artifact.dynamic,
        )

    def artifact(self, files: Mapping[str, bytes]) -> Artifact:
        """The artifact, given its files' content."""
        return Artifact(
            files=files,
            metadata=self.metadata,
            requires=self.requires,
            constants=self.constants,
            workspace_bytes=self.workspace_bytes,
            variant=self.variant,
            capturable=self.capturable,
            deterministic=self.deterministic,
            dynamic=self.dynamic,
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A distribution the artifacts were built with, for whoever redistributes the package.

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
        artifacts: By call site.
        weights: By content hash.
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
    artifacts: dict[str, PackagedArtifact]
    weights: dict[str, Weight]
    libraries: tuple[Library, ...]
    entries: dict[str, Entry]

    def __post_init__(self) -> None:
        if not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"{self.threads} is no number of threads")

    def to_json(self) -> bytes:
        """The bytes of `manifest.json`."""
        return json.dumps(_converter().unstructure(self), indent=1, sort_keys=True, allow_nan=False).encode()

    @classmethod
    def from_json(cls, data: bytes, path: str) -> Manifest:
        """Read `manifest.json`.

        Args:
            data: Its bytes.
            path: The package, for messages.

        Raises:
            NotAPackageError: If it is some other manifest.
            PackageVersionError: If its schema is newer than this code.
            PackageDamagedError: If it is not what any version writes.
        """
        loaded = parsed(data, "manifest", path)
        if not isinstance(loaded, dict) or loaded.get("format") != FORMAT:
            raise NotAPackageError(path, f"its manifest does not say that it is a {FORMAT}")
        version = loaded.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            written_by = loaded.get("collage_version", "a newer Collage")
            raise PackageVersionError(
                path,
                f"it has schema version {version}, this Collage reads up to {SCHEMA_VERSION}; "
                f"it was written by {written_by}: upgrade collage-core",
            )
        try:
            return _converter().structure(loaded, cls)
        except Exception as error:  # cattrs wraps whatever a constructor or a hook raises
            reasons = ""
            if isinstance(error, cattrs.BaseValidationError):
                reasons = "; ".join(cattrs.transform_error(error, format_exception=_in_its_own_words))
            raise PackageDamagedError(path, f"its manifest is malformed: {reasons or error}") from error


def parsed(data: bytes | memoryview, what: str, path: str) -> Any:
    """The value of an entry of JSON.

    Args:
        data: Its bytes.
        what: What to call it.
        path: The package, for messages.

    Raises:
        PackageDamagedError: If it is not JSON, or more than any package has.
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
    """Whether an entry's name stays inside whatever folder it is extracted to, on any system.

    Examples:
        >>> is_safe_name("artifacts/k0001/model.onnx"), is_safe_name("../x"), is_safe_name("/x"), is_safe_name("c:x")
        (True, False, False, False)
    """
    return all(is_plain_name(part) for part in name.split("/"))


@functools.cache  # cattrs compiles code for each class: once, not whenever a package is opened
def _converter() -> cattrs.Converter:
    converter = cattrs.preconf.json.make_converter()
    # cattrs turns "3" into 3 by default; here a wrong type is damage
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly)
    return converter


def _in_its_own_words(error: BaseException, kind: type | None) -> str:
    """What a check of ours says; of what else cattrs finds, its own description."""
    return str(error) if isinstance(error, TypeError | ValueError) else format_exception(error, kind)


def _exactly(value: Any, kind: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, got {value!r}")
    return value
