"""What is asked for when a call site is lowered again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from collage.build import relower as relowering
from collage.documents.artifact_manifest import ArtifactManifest
from collage.measure.wire.outcomes import Built
from collage_core.contract import Host, Target
from collage_core.passes.call_sites import call_sites
from collage_testing import GraphBuilder
from tests.engine.runtime.fakes import CPU, split


class RecordingWorker:
    """A worker that builds nothing and keeps what it was asked."""

    asked: ClassVar[list[Any]] = []

    def __init__(self, *_: object) -> None: ...

    def targets(self, host: Host) -> tuple[Target, ...]:
        return (CPU,)

    def build(self, ask: Any) -> Built:
        self.asked.append(ask)
        empty: Any = {}
        return Built(
            artifact=ArtifactManifest(
                files=empty,
                metadata=empty,
                requires=(),
                constants=empty,
                workspace_bytes=0,
                variant="again",
                capturable=False,
                deterministic=True,
            )
        )

    def close(self) -> None: ...


@pytest.mark.parametrize(
    ("record", "wanted"),
    [({"deterministic": True}, True), ({"deterministic": False}, False), ({}, False), (None, False)],
)
def test_a_package_made_with_deterministic_kernels_gets_such_again(
    record: Any, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relowering, "Worker", RecordingWorker)
    g = GraphBuilder()
    [site] = call_sites(split(g.model(g.op("Neg", g.input("x", 4))), {}))
    package: Any = SimpleNamespace(targets={site.name: CPU}, record=record)

    artifact = relowering.lower_again(package, site, threads=2)

    assert artifact.variant == "again"
    build = RecordingWorker.asked.pop().build
    assert (build.threads, build.deterministic) == (2, wanted)
