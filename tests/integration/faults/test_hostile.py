"""Whatever a plugin's code does to the process of a command: the right file, the right status, one line, and an end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from collage_core.ir.io.model_io import load_model, save_model
from tests.integration.faults import hostile
from tests.integration.faults.running import model

COMMAND = """
from collage import watcher
from collage.cli import main
watcher.LINGER_S = 0.5
main()
"""


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command with the plugins of a folder, in it, as users do: with relative names of files.

    What it writes goes to files: the end of a pipe would be that of the processes that plugins leave.
    """
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    command = [sys.executable, "-P", "-c", COMMAND, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "200", "COLLAGE_TUNING_DB": str(folder / "db.sqlite")}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        ended = subprocess.run(command, cwd=folder, env=environment, stdout=out, stderr=err, check=False)
        for stream in (out, err):
            stream.seek(0)
        return subprocess.CompletedProcess(command, ended.returncode, out.read(), err.read())


def partitioned(folder: Path, *kinds: str) -> subprocess.CompletedProcess[str]:
    """Install plugins and run a command that writes a file and starts one worker only."""
    hostile.install(folder, *kinds)
    save_model(model(), folder / "small.onnx")
    return run(folder, "partition", "small.onnx", "--for", "reference", "-o", "out.onnx")


def check_kept(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    """The command did what it promises."""
    assert done.returncode == 0, done.stderr
    assert "reference takes 5 of 5 nodes, in 5 kernels; saved" in done.stdout
    assert len(load_model(folder / "out.onnx").functions) == 5
    assert (folder / "out.onnx").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def lines_about(kind: str, stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if f"'{kind}'" in line]


class Ran(NamedTuple):
    """A command that ran with several plugins at once, and the folder it ran in."""

    done: subprocess.CompletedProcess[str]
    folder: Path


@pytest.fixture(scope="module")
def mild(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """With all plugins whose doings are undone, or which do not load."""
    folder = tmp_path_factory.mktemp("mild")
    return Ran(partitioned(folder, *hostile.RESTORED, *hostile.REFUSED), folder)


@pytest.fixture(scope="module")
def ending(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """With all plugins that end the process."""
    folder = tmp_path_factory.mktemp("ending")
    return Ran(partitioned(folder, *hostile.ENDING), folder)


@pytest.fixture(scope="module")
def lingering(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """With all plugins that leave something."""
    folder = tmp_path_factory.mktemp("lingering")
    return Ran(partitioned(folder, *hostile.LINGERING), folder)


@pytest.mark.guards(
    "a plugin's code in the driver changes the working directory, umask, recursion limit, locale, environment, "
    "signals, limits, rounding, NumPy's settings, built-in functions or standard streams",
    "it is undone, one line names the plugin, and the command does what it would have done",
    area="toolchains",
)
@pytest.mark.parametrize("kind", hostile.RESTORED)
def test_what_a_plugin_changes_is_undone_and_named(mild: Ran, kind: str) -> None:
    [line] = lines_about(kind, mild.done.stderr)
    assert line.startswith(f"Warning: toolchain '{kind}' changed ")
    assert hostile.RESTORED[kind].said in line
    assert line.endswith(" of this process in import; that was undone.")
    check_kept(mild.done, mild.folder)


@pytest.mark.parametrize("kind", hostile.REFUSED)
def test_a_plugin_that_does_not_load_costs_itself_only(mild: Ran, kind: str) -> None:
    assert lines_about(kind, mild.done.stderr) == []
    check_kept(mild.done, mild.folder)


@pytest.mark.guards(
    "a plugin's code in the driver ends its process (`os._exit(0)`, a crash), or closes all files",
    "the command starts again without the plugin, and says so in one line; `doctor` names the reason; one that was "
    "asked for by name is refused with it",
    area="toolchains",
)
@pytest.mark.parametrize("kind", hostile.ENDING)
def test_a_plugin_that_ends_the_process_is_left_out(ending: Ran, kind: str) -> None:
    [line] = lines_about(kind, ending.done.stderr)
    assert line.startswith("Warning: ")
    assert hostile.ENDING[kind].said in line
    assert line.endswith("; the command starts again without it.")
    check_kept(ending.done, ending.folder)


@pytest.mark.guards("a plugin's code in the driver ends its process (`os._exit(0)`, a crash), or closes all files")
def test_a_plugin_that_was_asked_for_and_ends_the_process_is_refused_by_name(tmp_path: Path) -> None:
    hostile.install(tmp_path, hostile.IN_A_PREDICATE)
    save_model(model(), tmp_path / "small.onnx")

    done = run(tmp_path, "partition", "small.onnx", "--for", hostile.IN_A_PREDICATE, "-o", "out.onnx")

    assert done.returncode == 2
    assert not (tmp_path / "out.onnx").exists()
    assert done.stderr.splitlines()[-1] == (
        f"Error: toolchain {hostile.IN_A_PREDICATE!r} (hostile 1.0) failed to load: it ended the process of the "
        "command in finding candidates (status 0), so the command leaves it out"
    )


@pytest.mark.guards(
    "a plugin leaves a thread, a process or a copy of the driver that never ends, or prints to standard output",
    "the command ends with its own status all the same; standard output holds what the command writes, and no more",
    area="toolchains",
)
@pytest.mark.parametrize("kind", hostile.LINGERING)
def test_a_command_ends_with_its_own_status_whatever_a_plugin_leaves(lingering: Ran, kind: str) -> None:
    check_kept(lingering.done, lingering.folder)
    assert hostile.LINGERING[kind].said in lingering.done.stderr
    assert len(lingering.done.stdout.splitlines()) == 1


@pytest.mark.guards(
    "a plugin leaves a thread, a process or a copy of the driver that never ends, or prints to standard output"
)
@pytest.mark.parametrize("kind", hostile.AT_THE_END)
def test_the_status_of_a_command_is_its_own_whatever_runs_after_it(tmp_path: Path, kind: str) -> None:
    check_kept(partitioned(tmp_path, kind), tmp_path)
