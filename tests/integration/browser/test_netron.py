"""The exported model in Netron, which serves it on this machine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from collage.runtime.package import load_package
from tests.integration.browser.conftest import Browser, collage

pytestmark = [pytest.mark.browser, pytest.mark.plugins]


def test_netron_shows_kernels_by_what_they_do(browser: Browser, packages: dict[str, Path], tmp_path: Path) -> None:
    netron = pytest.importorskip("netron")
    model = tmp_path / "plan.onnx"
    collage("export", packages["segmenter"], "-o", model)
    regions = load_package(packages["segmenter"]).plan.record["regions"]
    address, port = netron.serve("plan.onnx", model.read_bytes(), address=("127.0.0.1", 0))
    try:
        browser.size(900, 1100)
        browser.open(f"http://{address}:{port}")
        deadline = time.monotonic() + 60
        while not (texts := browser.run("return [...document.querySelectorAll('svg text')].map(e => e.textContent)")):
            assert time.monotonic() < deadline, "Netron drew nothing in a minute"
            for button in browser.all("button"):  # it asks whether it may report how it is used
                if "Accept" in button.text:
                    button.click()
            time.sleep(0.5)
        browser.shoot("netron")
    finally:
        netron.stop((address, port))

    for region in regions:  # a name of more than 21 characters has its first and its last ten only
        begin = f"{region['toolchain']} · "[:10]
        assert any(text.startswith(begin) for text in texts), texts
