"""Reports of real plans in a browser: they work, load nothing, and say what the record says."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from collage.report import figures
from collage.runtime.package import load_package
from tests.integration.browser.conftest import LARGE, SUITE, Browser

pytestmark = [pytest.mark.browser, pytest.mark.plugins]

NAMES = pytest.mark.parametrize("name", [*SUITE, LARGE])


def record(package: Path) -> Any:
    return load_package(package).plan.record


def opened(browser: Browser, page: Path, width: int = 1200) -> None:
    browser.size(width)
    browser.open(page.as_uri())


@NAMES
def test_a_page_loads_nothing_and_complains_of_nothing(browser: Browser, pages: dict[str, Path], name: str) -> None:
    opened(browser, pages[name])
    for node in browser.all(".canvas .node")[:3]:
        browser.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", node)

    assert {address.partition(":")[0] for address in browser.requests()} <= {"file", "data"}
    assert browser.complaints() == []


@NAMES
def test_a_page_answers_once_it_is_open(browser: Browser, pages: dict[str, Path], name: str) -> None:
    """How long that takes is printed (`-s`), and looked at by hand: three seconds are the aim."""
    began = time.monotonic()

    opened(browser, pages[name])
    browser.run("arguments[0].dispatchEvent(new MouseEvent('click', {bubbles: true}))", browser.all(".node")[0])

    assert browser.text(".panel h3")
    print(f"{name}: usable after {time.monotonic() - began:.2f} s, {pages[name].stat().st_size / 1e6:.2f} MB")


@NAMES
def test_figures_on_the_page_are_those_of_the_record(
    browser: Browser, pages: dict[str, Path], packages: dict[str, Path], name: str
) -> None:
    facts = record(packages[name])

    opened(browser, pages[name])

    assert browser.text(".decision") == facts["decision"]
    shown = {
        row.find_element("css selector", "th").text.split("\n")[0]: row for row in browser.all(".contenders tbody tr")
    }
    for contender in facts["comparison"]["contenders"]:
        if contender["latency_ms"] is not None:
            assert figures.milliseconds(contender["latency_ms"]["p50"]) in shown[contender["name"]].text
    rows = {row.get_attribute("data-region"): row for row in browser.all(".kernels tbody tr")}
    for region in facts["regions"]:
        if region["id"] in rows:
            row = rows[region["id"]]
            assert row.find_element("css selector", ".predicted").text == figures.microseconds(region["cost_us"])
            assert row.find_element("css selector", ".measured").text == figures.microseconds(region["measured_us"])


@NAMES
def test_a_click_on_a_kernel_shows_its_operators_and_the_others(
    browser: Browser, pages: dict[str, Path], packages: dict[str, Path], name: str
) -> None:
    facts = record(packages[name])

    opened(browser, pages[name])
    browser.run("arguments[0].click()", browser.all(".piece")[0])

    panel = browser.text(".panel")
    region = facts["regions"][0]
    assert region["id"] in panel
    assert f"why {region['target']}: " in panel
    for other in region["alternatives"]:
        assert other["target"] in panel
    browser.run("arguments[0].click()", browser.one(".panel .open"))
    assert len(browser.all(".node.operator, .node.group")) > 0


@NAMES
def test_an_operator_is_found_and_brought_into_view(
    browser: Browser, pages: dict[str, Path], packages: dict[str, Path], name: str
) -> None:
    wanted = record(packages[name])["regions"][-1]["nodes"][-1]

    opened(browser, pages[name])
    browser.one(".find").send_keys(wanted)
    browser.run("arguments[0].click()", browser.all(".found button")[0])

    assert wanted in browser.text(".panel")
    chosen, canvas = (
        browser.run("const r = arguments[0].getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]", each)
        for each in (browser.one(".node.chosen"), browser.one(".canvas"))
    )
    assert canvas[0] <= chosen[0] <= chosen[2] <= canvas[2]
    assert canvas[1] <= chosen[1] <= chosen[3] <= canvas[3]
    browser.one(".find").send_keys("there is no such operator")
    assert "nothing found" in browser.text(".found")


def test_colours_change_and_change_back(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["segmenter"])
    colour = "return getComputedStyle(document.body).backgroundColor"

    first = browser.run(colour)
    browser.one("#theme").click()
    other = browser.run(colour)
    browser.one("#theme").click()

    assert first != other
    assert browser.run(colour) == first


def test_everything_works_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    opened(browser, pages["segmenter"])
    view = "return document.querySelector('.canvas svg').getAttribute('viewBox').split(' ').map(Number)"
    before = browser.run(view)

    canvas = browser.one(".canvas")
    canvas.send_keys("+")
    nearer = browser.run(view)
    canvas.send_keys("\ue015")  # arrow down
    lower = browser.run(view)
    canvas.send_keys("0")

    assert nearer[2] < before[2]
    assert lower[1] > nearer[1]
    assert browser.run(view) == pytest.approx(before)
    node = browser.one(".node.kernel")
    node.send_keys("\ue007")  # Enter
    assert re.search(r"why \w+: ", browser.text(".panel"))
    browser.run("arguments[0].click()", browser.one(".panel .open"))
    below = browser.text(".trail")
    browser.one(".canvas").send_keys("\ue003")  # Backspace
    assert browser.text(".trail") != below


@pytest.mark.parametrize("width", [400, 2000])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_sticks_out_of_the_page(browser: Browser, pages: dict[str, Path], width: int, dark: bool) -> None:
    opened(browser, pages["segmenter"], width)
    if dark:
        browser.one("#theme").click()

    wider = browser.run(
        "return [...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll, .canvas, pre') && "
        "e.getBoundingClientRect().right > window.innerWidth + 1).map(e => e.className || e.tagName)"
    )
    browser.shoot(f"segmenter-{width}-{'dark' if dark else 'light'}")

    assert wider == []
    assert browser.run("return document.documentElement.scrollWidth") <= width


@NAMES
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, pages: dict[str, Path], name: str, dark: bool) -> None:
    axe = Path(os.environ.get("AXE", ""))
    if not axe.is_file():
        pytest.skip("AXE does not name axe.min.js of npm's axe-core; tox -e browser sets it")
    opened(browser, pages[name])
    if dark:
        browser.one("#theme").click()
    browser.run(axe.read_text(encoding="utf-8"))

    found = browser.driver.execute_async_script(
        "const done = arguments[arguments.length - 1]; axe.run().then(r => done(r.violations))"
    )

    serious = [
        (each["id"], each["impact"], [node["target"] for node in each["nodes"]][:3], each["nodes"][0]["failureSummary"])
        for each in found
        if each["impact"] in ("serious", "critical")
    ]
    assert serious == []
