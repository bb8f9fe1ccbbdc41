"""What is said of an artifact beside its files' bytes, in a worker's answer as in a package."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from collage_core.contract import Artifact, Requirement, weight_named
from collage_core.contract.names import is_plain_name


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactManifest:
    """An artifact whose files are kept elsewhere; see `contract.Artifact` for the other attributes.

    Attributes:
        files: Where each file's bytes are, by file name: a blob of a message's store, an entry of a package's archive.
    """

    files: dict[str, str]
    metadata: dict[str, Any]
    requires: tuple[Requirement, ...]
    constants: dict[str, str]
    workspace_bytes: int
    variant: str
    capturable: bool
    deterministic: bool

    def __post_init__(self) -> None:
        if self.workspace_bytes < 0:
            raise ValueError(f"{self.workspace_bytes} is no size of a workspace")
        for key in self.constants.values():
            weight_named(key)
        for name in self.files:
            if not is_plain_name(name):  # plugins write files under these names when they load
                raise ValueError(f"{name[:200]!r} is no plain file name")

    @classmethod
    def of(cls, artifact: Artifact, files: Mapping[str, str]) -> ArtifactManifest:
        """Describe an artifact.

        Args:
            artifact: The artifact.
            files: Where its files were put, by file name.

        Raises:
            TypeError: If its metadata is not JSON.
            ValueError: If a number in it is none of JSON's.
        """
        return cls(
            files=dict(files),
            metadata=json.loads(json.dumps(dict(artifact.metadata), allow_nan=False)),
            requires=artifact.requires,
            constants=dict(artifact.constants),
            workspace_bytes=artifact.workspace_bytes,
            variant=artifact.variant,
            capturable=artifact.capturable,
            deterministic=artifact.deterministic,
        )

    def artifact(self, contents: Mapping[str, bytes]) -> Artifact:
        """Return the artifact, given the bytes of its files by file name."""
        return Artifact(
            files=contents,
            metadata=self.metadata,
            requires=self.requires,
            constants=self.constants,
            workspace_bytes=self.workspace_bytes,
            variant=self.variant,
            capturable=self.capturable,
            deterministic=self.deterministic,
        )
