"""Which of our own toolchains' artifacts are data, as the page on packages says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from collage_core.contract import Artifact, Supported, Target
from collage_core.registry import load_toolchain

pytestmark = pytest.mark.plugins

PAGE = Path(__file__).parents[3] / "docs" / "user" / "package-format.md"


def listed(kind: str) -> list[str]:
    """The toolchains in the page's row of data, or of code."""
    [row] = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| {kind} | ")]
    return re.findall("`([a-z_]+)`", row)


@pytest.mark.parametrize(("kind", "data"), [("data", True), ("code", False)])
def test_the_page_says_what_the_plugins_say(kind: str, data: bool) -> None:
    names = listed(kind)
    assert len(names) >= 3
    for name in names:
        checked = load_toolchain(name).check_data(Target(toolchain=name, fingerprint="x"), Artifact(files={}))
        assert isinstance(checked, Supported) is data, name
