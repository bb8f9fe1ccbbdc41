"""The page on writing plugins shows code that is really installed and run, by `test_dist.py`."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from collage.cli import main
from collage_core import hookspecs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/plugin-authors/writing-a-plugin.md").read_text(encoding="utf-8")
SAMPLER = ROOT / "tests/dist/collage-sampler"
SOURCES = (
    SAMPLER / "collage_sampler/plugin.py",
    ROOT / "tests/integration/test_dist.py",
    ROOT / "tests/kit/test_device_plugin.py",
)


def blocks(language: str) -> list[str]:
    """Fenced blocks of the page, by the language they name."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    return [block for named, block in found if named == language]


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block.splitlines()[0].strip())
def test_python_on_the_page_is_a_verbatim_excerpt(block: str) -> None:
    """Methods are shown without their class, and so without its indentation."""
    sources = [source.read_text(encoding="utf-8") for source in SOURCES]
    spellings = [f"\n{block}", f"\n{textwrap.indent(block, ' ' * 4)}"]

    assert any(spelling in source for spelling in spellings for source in sources)


def test_every_hook_of_the_plugin_is_on_the_page() -> None:
    used = set(re.findall(r"def (collage_\w+)", SOURCES[0].read_text(encoding="utf-8")))

    assert used == set(re.findall(r"def (collage_\w+)", "".join(blocks("python"))))


def test_the_project_file_on_the_page_is_part_of_the_real_one() -> None:
    """What the page leaves out: description, version, how it is built, and the entry point that fails on purpose."""
    real = tomllib.loads((SAMPLER / "pyproject.toml").read_text(encoding="utf-8"))
    block = blocks("toml")[0]

    assert_part(tomllib.loads(block), real)


def assert_part(shown: Mapping[str, Any], real: Mapping[str, Any]) -> None:
    for key, value in shown.items():
        if isinstance(value, Mapping):
            assert_part(value, real[key])
        else:
            assert real[key] == value


def test_hooks_the_page_names_exist() -> None:
    named = set(re.findall(r"collage_(?!core|cuda|npu|testing|sampler|onnxruntime|openvino)\w+", PAGE))

    assert named
    assert all(callable(getattr(hookspecs, name, None)) for name in named), named


def test_commands_on_the_page_exist_with_their_options() -> None:
    lines = [line for block in blocks("") for line in block.splitlines() if line.startswith("collage ")]

    assert lines
    for line in lines:
        name, *arguments = shlex.split(line)[1:]
        command = main.commands[name]
        known = {
            option for parameter in command.params if isinstance(parameter, click.Option) for option in parameter.opts
        }
        assert {each for each in arguments if each.startswith("-")} <= known, line
