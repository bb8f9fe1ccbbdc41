"""What the tests share: how a kernel is to be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.contract import BuildContext
from collage_testing.kit.contexts import MemoryBlobs
from collage_testing.kit.gpu_plugins import HOST


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return BuildContext(
        threads=2,
        host=HOST,
        effort=1,
        deadline_s=600,
        workspace_limit_bytes=1 << 24,
        seed=0,
        blobs=MemoryBlobs(),
        scratch=tmp_path,
        max_variants=3,
    )
