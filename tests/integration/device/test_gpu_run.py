"""`python -m tests.from_source -m pytest -m gpu`: the command for a machine with a GPU, and what it does elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from collage.devices.this_host import this_host
from tests.from_source import BASE, ROOT, missing


def from_source(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.from_source", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_a_source_tree_looks_installed() -> None:
    script = (
        "import importlib.metadata as m, collage_cublas, collage_triton, sys\n"
        "print(m.version('collage-core'), m.version('collage-engine'))\n"
        "print(*sorted({e.name for e in m.entry_points(group='collage.backends')}))\n"
        "sys.exit(7)"
    )

    done = from_source("-c", script)

    assert done.returncode == 7, done.stderr
    *versions, toolchains = done.stdout.split(maxsplit=2)
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions)
    assert {"reference", "onnxruntime", "openvino", "cublas", "triton", "sampler"} <= set(toolchains.split())


def test_what_is_asked_for_and_not_there_is_named(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("pytest-nobody-has[all]>=3\npytest>=8\n", encoding="utf-8")
    projects = [tmp_path / "one", tmp_path / "two"]
    for project in projects:
        project.mkdir()
        asked = '["collage-core==0.1.0", "numpy>=2.0", "nobodys-lib"]'
        (project / "pyproject.toml").write_text(f'[project]\nname = "it"\ndependencies = {asked}\n', encoding="utf-8")

    assert missing(projects, [requirements]) == ["nobodys-lib", "pytest-nobody-has[all]>=3"]
    assert missing(projects) == ["nobodys-lib"]
    assert missing(BASE) == []


@pytest.mark.guards("a test needs a GPU, or a library, that is not there")
@pytest.mark.slow
@pytest.mark.skipif(this_host().device("cuda:0") is not None, reason="this machine has a GPU, so they would be run")
def test_without_a_gpu_all_are_collected_and_skipped_with_a_reason() -> None:
    done = from_source("-m", "pytest", "-m", "gpu", "-rs", "-q", "-p", "no:cacheprovider")

    assert done.returncode == 0, done.stdout
    summary = done.stdout.splitlines()[-1]
    assert re.search(r"\d\d+ skipped", summary)
    assert not re.search(r"passed|failed|error", summary)
    reasons = [line for line in done.stdout.splitlines() if line.startswith("SKIPPED")]
    assert reasons
    # what else they need is looked at first where a whole file does without it
    assert all("needs an NVIDIA GPU" in line or "is not installed" in line for line in reasons), reasons
    assert any("needs an NVIDIA GPU" in line for line in reasons)
