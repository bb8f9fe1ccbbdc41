"""Artifacts as messages have them, and back: files as blobs, the rest as their manifest says it."""

from __future__ import annotations

from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.wire.blobs import BlobStore
from collage_core.contract import Artifact


def encode_artifact(artifact: Artifact, store: BlobStore) -> ArtifactManifest:
    """Return what a worker says of an artifact it built, and put its files into the store.

    Raises:
        TypeError: If its metadata is not JSON.
        ValueError: If a number in it is none of JSON's.
    """
    return ArtifactManifest.of(artifact, {name: store.put(data) for name, data in artifact.files.items()})


def artifact_of(manifest: ArtifactManifest, store: BlobStore) -> Artifact:
    """Return the artifact that a worker built.

    Raises:
        WireError: If a file of it is not in the store.
    """
    return manifest.artifact({name: store.read(blob) for name, blob in manifest.files.items()})
