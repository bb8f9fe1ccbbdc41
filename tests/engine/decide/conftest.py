from __future__ import annotations

import pytest

from collage.store import MemoryStore, TuningStore


@pytest.fixture
def database() -> TuningStore:
    return MemoryStore()
