"""What the tests share: how a kernel is to be built."""

from __future__ import annotations

from pathlib import Path

import pytest

from collage_core.contract import BuildContext
from collage_testing.kit import build_context
from collage_testing.kit.gpu_plugins import HOST


@pytest.fixture
def build(tmp_path: Path) -> BuildContext:
    return build_context(tmp_path, max_variants=4, host=HOST)
