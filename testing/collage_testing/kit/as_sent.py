"""An artifact as it arrives in another process."""

from __future__ import annotations

import dataclasses
import json

from collage_core.contract import Artifact, Requirement


def as_sent(artifact: Artifact) -> Artifact:
    """Return the artifact as it arrives in another process: only JSON and bytes of it.

    Raises:
        TypeError: If something in it is neither.
        ValueError: If a number in it is not finite.
    """
    for name, data in artifact.files.items():
        if not isinstance(data, bytes):
            raise TypeError(f"file {name!r} is {type(data).__name__}, not bytes")
    fields = {field.name: getattr(artifact, field.name) for field in dataclasses.fields(artifact)}
    files = fields.pop("files")
    fields["requires"] = [dataclasses.asdict(requirement) for requirement in artifact.requires]
    fields["metadata"], fields["constants"] = dict(artifact.metadata), dict(artifact.constants)
    arrived = json.loads(json.dumps(fields, allow_nan=False))
    arrived["requires"] = tuple(Requirement(**requirement) for requirement in arrived["requires"])
    return Artifact(files={name: bytes(data) for name, data in files.items()}, **arrived)
