"""A real browser: Chromium without a screen, which notes every request and every message of its console."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collage_core.ir.io.model_io import save_model
from collage_testing.graphs import GraphBuilder

ROOT = Path(__file__).parents[3]
SHOTS = "COLLAGE_SCREENSHOTS"
"""Environment variable: the folder that screenshots are put into; those of a test's own folder are lost."""
SUITE = ("resnet50", "segmenter", "bert_base_6")
LARGE = "ten_thousand"


class Browser:
    """Chromium on one page.

    Args:
        driver: Selenium's.
        shots: Folder for screenshots.
    """

    def __init__(self, driver: Any, shots: Path) -> None:
        self.driver = driver
        self._shots = shots

    def open(self, address: str) -> None:
        self.driver.get("about:blank")
        self.requests(), self.complaints()  # those of the page before
        self.driver.get(address)

    def size(self, width: int, height: int = 1000) -> None:
        """Give the page a width; a window has a least width, a page does not."""
        command = "Emulation.setDeviceMetricsOverride"
        self.driver.execute_cdp_cmd(
            command, {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        )

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", selector))

    def one(self, selector: str) -> Any:
        return self.driver.find_element("css selector", selector)

    def text(self, selector: str) -> str:
        return str(self.one(selector).text)

    def requests(self) -> list[str]:
        """Addresses asked for since the last call."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def complaints(self) -> list[str]:
        """Errors and warnings of the console since the last call."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]

    def shoot(self, name: str) -> Path:
        path = self._shots / f"{name}.png"
        self.driver.save_screenshot(str(path))
        return path


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    webdriver = pytest.importorskip("selenium.webdriver")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    # it finds no other machine: Netron would report how it is used
    nobody = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1200,1000", nobody):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    started = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    shots = Path(os.environ.get(SHOTS) or tmp_path_factory.mktemp("shots"))
    shots.mkdir(parents=True, exist_ok=True)
    try:
        yield Browser(started, shots)
    finally:
        started.quit()


def collage(*arguments: object) -> None:
    command = [sys.executable, "-m", "collage.cli", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def write_large(path: Path) -> None:
    """A generated model of ten thousand operators: blocks of light work with a skip each."""
    g = GraphBuilder("ten_thousand")
    value = skipped = g.input("x", 1, 64)
    scale = g.weight("scale", 64)
    for number in range(10_000):
        if number % 5 == 0:
            skipped = value
        if number % 5 == 4:
            value = g.op("Add", value, skipped)
        else:
            value = g.op("Mul", value, scale) if number % 5 == 1 else g.op("Tanh", value)
    save_model(g.model(value), path)


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Packages of real models and of a generated one; COLLAGE_PACKAGES names a folder that has some already."""
    folder = tmp_path_factory.mktemp("packages")
    known = Path(os.environ.get("COLLAGE_PACKAGES") or folder)
    found = {}
    for name in (*SUITE, LARGE):
        found[name] = known / f"{name}.collage"
        if found[name].is_file():
            continue
        found[name] = folder / f"{name}.collage"
        model = folder / f"{name}.onnx"
        if name == LARGE:
            write_large(model)
        else:
            written = [sys.executable, "-m", "benchmarks.models", name, "--out", str(folder)]
            subprocess.run(written, cwd=ROOT, check=True, capture_output=True)
        toolchains = "onnxruntime" if name == LARGE else "onnxruntime,openvino"
        arguments = ["--preset", "quick", "--tuning-db", "memory:", "--toolchains", toolchains]
        collage("optimize", model, "-o", found[name], *arguments, *(["--budget", "5m"] if name == LARGE else []))
    return found


@pytest.fixture(scope="session")
def pages(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, package in packages.items():
        collage("report", package, "-o", folder / f"{name}.html")
    return {name: folder / f"{name}.html" for name in packages}
