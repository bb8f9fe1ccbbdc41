"""Artifacts as messages have them, and back: files as blobs, the rest as it is."""

from __future__ import annotations

import json

from collage.measure.wire.blobs import BlobStore
from collage.measure.wire.wire_values import WireArtifact
from collage_core.contract import Artifact


def encode_artifact(artifact: Artifact, store: BlobStore) -> WireArtifact:
    """What a worker says of an artifact it built; its files go to the store.

    Raises:
        TypeError: If its metadata is not JSON.
        ValueError: If a number in it is none of JSON's.
    """
    return WireArtifact(
        files={name: store.put(data) for name, data in artifact.files.items()},
        metadata=json.loads(json.dumps(dict(artifact.metadata), allow_nan=False)),
        requires=artifact.requires,
        constants=dict(artifact.constants),
        workspace_bytes=artifact.workspace_bytes,
        variant=artifact.variant,
        capturable=artifact.capturable,
        deterministic=artifact.deterministic,
        dynamic=artifact.dynamic,
    )


def artifact_of(wire: WireArtifact, store: BlobStore) -> Artifact:
    """The artifact a worker built.

    Raises:
        WireError: If a file of it is not in the store.
    """
    return Artifact(
        files={name: store.read(blob) for name, blob in wire.files.items()},
        metadata=wire.metadata,
        requires=wire.requires,
        constants=wire.constants,
        workspace_bytes=wire.workspace_bytes,
        variant=wire.variant,
        capturable=wire.capturable,
        deterministic=wire.deterministic,
        dynamic=wire.dynamic,
    )
