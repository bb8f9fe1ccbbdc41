"""An artifact goes to a worker's answer, to the driver and into a package with everything it says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.wire.artifact_codec import artifact_of, encode_artifact
from collage.measure.wire.blobs import BlobStore
from collage_core.contract import Artifact, Requirement

ARTIFACT = Artifact(
    files={"a.bin": b"\0\1", "b.json": b"{}"},
    metadata={"tiles": [1, 2], "nested": {"x": None}},
    requires=(Requirement(kind="isa", name="avx2"),),
    constants={"w": "0" * 64},
    workspace_bytes=12,
    variant="tiled",
    capturable=True,
    deterministic=False,
)


def test_nothing_of_the_artifact_is_what_it_would_be_if_it_were_forgotten() -> None:
    for field in dataclasses.fields(Artifact):
        if field.default_factory is not dataclasses.MISSING:
            assert getattr(ARTIFACT, field.name) != field.default_factory()
        assert getattr(ARTIFACT, field.name) != field.default


def test_it_comes_from_a_worker_as_it_was(tmp_path: Path) -> None:
    store = BlobStore(tmp_path)

    assert artifact_of(encode_artifact(ARTIFACT, store), store) == ARTIFACT


def test_it_comes_from_a_manifest_as_it_was() -> None:
    manifest = ArtifactManifest.of(ARTIFACT, dict.fromkeys(ARTIFACT.files, "artifacts/k/x"))

    assert manifest.artifact(ARTIFACT.files) == ARTIFACT


def test_a_manifest_has_every_field_of_an_artifact() -> None:
    names = [field.name for field in dataclasses.fields(Artifact)]

    assert [field.name for field in dataclasses.fields(ArtifactManifest)] == names
