"""The kit does to the plugin what Collage will, and names whatever breaks the contract."""

from __future__ import annotations

from collage_core.registry import load_toolchain
from collage_testing import operator_models
from collage_testing.kit import check_plugin


def test_the_plugin_keeps_the_contract() -> None:
    conformance = check_plugin(load_toolchain("example"), operator_models())

    assert "Conv" in " ".join(conformance.ran), conformance.refused
