"""Command lines that make no sense: misuse is told in one message that says what to write, before any work is done."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import collage
from collage_core.errors import ModelError, UsageError
from tests.hardship import COMMAND, ORDINARY, run_python
from tests.integration.input.refusals import FAILURE, MISUSE, Desk, contents, the_message

pytestmark = pytest.mark.usefixtures("once", "silent")


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Options that are refused.

    Attributes:
        options: What is added to a command that works.
        says: What the message holds.
        free: Whether the model is the one with a free dimension.
        status: How the command ends.
    """

    options: Sequence[object]
    says: Sequence[str]
    free: bool = False
    status: int = MISUSE


TOOLCHAINS = (
    Row(["--toolchains", "tvm"], ["no toolchain 'tvm' is installed; installed: ", "reference"]),
    Row(["--toolchains", "referense"], ["no toolchain 'referense'", "did you mean 'reference'?"]),
    Row(["--toolchains", "Reference"], ["no toolchain 'Reference'", "did you mean 'reference'?"]),
    Row(["--toolchains", "reference,tvm"], ["no toolchain 'tvm' is installed"]),
    Row(["--toolchains", "reference("], ["'reference(' is not a target; write toolchain, toolchain(option=value)"]),
    Row(["--toolchains", "reference(fast)"], ["'fast' in 'reference(fast)' is not of the form option=value"]),
    Row(["--toolchains", "reference@"], ["'reference@' is not a target"]),
    Row(["--toolchains", "two words"], ["'two words' is not a target"]),
    Row(["--toolchains", ","], ["--toolchains", "name at least one toolchain"]),
    Row(["--toolchains", ""], ["--toolchains", "name at least one toolchain"]),
    Row(["--exclude", "tvm"], ["no toolchain 'tvm' is installed"]),
    Row(["--exclude", "reference)"], ["'reference)' is not a target"]),
    Row(["--toolchain", "reference"], ["No such option", "--toolchain"]),
)

SHAPES = (
    Row(["--input-shapes", "x"], ["'x' is not an input shape; write for example x:[1,3,224,224]"]),
    Row(["--input-shapes", "[2,3]"], ["'[2,3]' is not an input shape"]),
    Row(["--input-shapes", "x=[2,3]"], ["'x=[2,3]' is not an input shape"]),
    Row(["--input-shapes", "x:[2,3"], ["'x:[2,3' is not an input shape"]),
    Row(["--input-shapes", "x:[2,three]"], ["'x:[2,three]' is not an input shape"]),
    Row(["--input-shapes", "x:[-2,3]"], ["'x:[-2,3]' is not an input shape"]),
    Row(["--input-shapes", "x:[2.0,3]"], ["'x:[2.0,3]' is not an input shape"]),
    Row(["--input-shapes", "z:[2,3]"], ["input 'z': the model has no such input", "'x', 'n'"], free=True),
    Row(["--input-shapes", "X:[2,3]"], ["input 'X': the model has no such input", "did you mean 'x'?"], free=True),
    Row(["--input-shapes", "x:[2]"], ["input 'x': [2] has 1 dimensions, the model declares [batch,3]"], free=True),
    Row(["--input-shapes", "x:[2,4]"], ["input 'x': [2, 4] contradicts the model's [batch,3]"], free=True),
    Row(["--input-shapes", "x:[4,3]"], ["input 'x': [4, 3] contradicts the model's [2,3]"]),
    Row(["--input-shapes", f"x:[{2**61},3]"], ["input 'x'", "more elements than there are addresses"], free=True),
    Row(["--input-shapes", f"x:[{10**40},3]"], ["input 'x'", "more elements than there are addresses"], free=True),
)

NUMBERS: dict[str, Sequence[Row]] = {
    "optimize": (
        Row(["--preset", "fast"], ["--preset", "'fast' is not one of 'quick', 'default', 'extensive'"]),
        Row(["--budget", "soon"], ["'soon' is not a time; write for example 90s, 10m or 1h30m"]),
        Row(["--budget", "-5m"], ["'-5m' is not a time"]),
        Row(["--budget", "9" * 400], ["is not a time"]),
        Row(["--max-error", "0"], ["--max-error", "0.0 is not in the range 0<x<1"]),
        Row(["--max-error", "1"], ["--max-error", "1.0 is not in the range 0<x<1"]),
        Row(["--max-error", "nan"], ["--max-error", "'nan' is no finite number"]),
        Row(["--ranges", "widest"], ["--ranges", "'widest' is not one of 'minmax', 'percentile', 'entropy'"]),
        Row(["--ranges", "entropy"], ["--ranges is for lower precision, which --max-error or --metric allows"]),
        Row(["--metric", "m.py:f"], ["--metric, --max-drop and --labelled belong together"]),
        Row(["--max-drop", "nan"], ["--max-drop", "'nan' is no finite number"]),
        Row(["--max-error", "1%"], ["--max-error", "'1%' is not a valid float"]),
        Row(["--rtol", "nan"], ["--rtol", "'nan' is no finite number"]),
        Row(["--rtol", "inf"], ["--rtol", "'inf' is no finite number"]),
        Row(["--rtol", "0"], ["--rtol", "0.0 is not in the range x>0"]),
        Row(["--threads", "0"], ["--threads", "0 is not in the range x>=1"]),
        Row(["--threads", "two"], ["--threads", "'two' is not a valid integer"]),
        Row(["--warmup", "-1"], ["--warmup", "-1 is not in the range x>=0"]),
        Row(["--iterations", "0"], ["--iterations", "0 is not in the range x>=1"]),
        Row(["--duration", "0"], ["'0' is not a time"]),
        Row(["--seed", "-1"], ["--seed", "-1 is not in the range x>=0"]),
        Row(["--seed", "1.5"], ["--seed", "'1.5' is not a valid integer"]),
        Row(["--reference", "tvm"], ["--reference: no toolchain 'tvm' is installed"]),
        Row(["--reference", "referense"], ["--reference", "did you mean 'reference'?"]),
        Row(["--reference", "reference("], ["--reference: 'reference(' is not a target"]),
        Row(
            ["--tuning-db", "http://x/y"],
            ["'http://...': it is not sqlite:///PATH, postgresql://..., a path, @FILE or memory:"],
        ),
        Row(["--tuning-db", "sqlite:x"], ["'sqlite:x': write sqlite:/// and then the path"]),
    ),
    "bench": (
        Row(["--rounds", "0"], ["--rounds", "0 is not in the range x>=1"]),
        Row(["--duration", "long"], ["'long' is not a time"]),
        Row(["--threads", "-2"], ["--threads", "-2 is not in the range x>=1"]),
    ),
    "compare": (
        Row(["--rtol", "-1"], ["--rtol", "-1.0 is not in the range x>=0"]),
        Row(["--rtol", "nan"], ["--rtol", "'nan' is no finite number"]),
        Row(["--atol", "nan"], ["--atol", "'nan' is no finite number"]),
        Row(["--reference", "tvm"], ["--reference: no toolchain 'tvm' is installed"]),
        Row(["--toolchains", "reference"], ["No such option", "--toolchains"]),
    ),
    "run": (
        Row(["--threads", "0"], ["--threads", "0 is not in the range x>=1"]),
        Row(["--seed", "-1"], ["--seed", "-1 is not in the range x>=0"]),
    ),
    "inspect": (Row(["--inputs", "in.npz"], ["No such option", "--input"]), Row(["more.onnx"], ["more.onnx"])),
    "explain": (Row(["--threads", "2"], ["No such option", "--threads"]),),
}


def spelt(row: Row) -> str:
    return " ".join(map(str, row.options))[:40]


@pytest.mark.guards(
    "`--input-shapes` that is no shape, names no input, has another rank, contradicts the model or "
    "itself, or is larger than any memory; a zero extent",
    "misuse, close names proposed; a zero extent works",
    area="input",
)
@pytest.mark.guards(
    "an unknown, misspelt or malformed toolchain, target, option of a toolchain, `--exclude`, `--reference`",
    "misuse, said before any work; the message lists what there is and proposes a close name",
    area="input",
)
@pytest.mark.parametrize("row", [*TOOLCHAINS, *SHAPES], ids=spelt)
def test_toolchains_and_shapes_that_make_no_sense_are_misuse(row: Row, desk: Desk) -> None:
    for command in ("inspect", "optimize", "bench"):
        desk.refuses(desk.command(command, *row.options, model=desk.free if row.free else None), row.status, row.says)


def test_only_optimize_takes_several_shapes_and_all_have_to_fit_the_model(desk: Desk) -> None:
    two = ["--input-shapes", "x:[2,3]", "--input-shapes", "x:[4,3]"]
    for command in ("inspect", "bench"):
        desk.refuses(desk.command(command, *two), 2, ["input 'x' is given two shapes; only `optimize` takes several"])
    desk.refuses(desk.command("optimize", *two), 2, ["input 'x': [4, 3] contradicts the model's [2,3]"])
    other = ["--input-shapes", "n:[2]"]
    for command in ("optimize", "bench"):
        says = ["input 'x': dimension batch", "--input-shapes x:[N,3]"]
        desk.refuses(desk.command(command, *other, model=desk.free), 2, says)
    wrong = ["--input-shapes", "x:[1|2,3|4]"]
    desk.refuses(desk.command("optimize", *wrong, model=desk.free), 2, ["4] contradicts the model's [batch,3]"])


@pytest.mark.guards(
    "a number out of range, `nan`, `inf`, no number; an unknown preset, time, option; a malformed `--tuning-db`",
    "misuse, naming the option",
    area="input",
)
@pytest.mark.parametrize("command", NUMBERS)
def test_numbers_and_names_that_make_no_sense_are_misuse(command: str, desk: Desk) -> None:
    for row in NUMBERS[command]:
        desk.refuses(desk.command(command, *row.options), row.status, row.says)


RESULTS = [
    ("inspect", "--json"),
    ("optimize", "--output"),
    ("optimize", "--json"),
    ("bench", "--json"),
    ("compare", "--json"),
    ("run", "--save-outputs"),
    ("run", "--profile"),
    ("run", "--json"),
    ("explain", "--json"),
]


@pytest.mark.guards(
    "a result in a missing folder, over a folder, under too long a name, in a folder nobody may write to",
    "misuse, said before any work",
    area="input",
)
@pytest.mark.parametrize(("command", "option"), RESULTS)
def test_a_result_that_cannot_be_written_is_misuse(command: str, option: str, desk: Desk) -> None:
    nowhere = desk.folder / "gone" / "out"

    desk.refuses(desk.command(command, option, nowhere), MISUSE, [option, f"no directory '{nowhere.parent}'"])
    desk.refuses(desk.command(command, option, desk.folder), MISUSE, [option, "is a directory"])
    desk.refuses(desk.command(command, option, desk.model / "out"), MISUSE, [option, "no directory"])
    desk.refuses(desk.command(command, option, "n" * 250), MISUSE, [option, "is too long a name"])


def test_no_toolchain_is_asked_for_a_result_that_cannot_be_written(desk: Desk) -> None:
    desk.refuses(["doctor", "--json", desk.folder], MISUSE, ["--json", "is a directory"])


@pytest.mark.guards(
    "a result over a file the command reads (itself, by a link, by a hard link), over another result, "
    "over the tuning database",
    "misuse; no file is touched",
    area="input",
)
@pytest.mark.parametrize(("command", "option"), RESULTS)
def test_a_result_is_not_written_over_what_is_read(command: str, option: str, desk: Desk) -> None:
    for read in read_by(command, desk):
        symbolic, hard = (read.with_name(f"{kind}-{read.name}") for kind in ("symbolic", "hard"))
        symbolic.symlink_to(read)
        hard.hardlink_to(read)
        given = ["--inputs", desk.inputs] if read == desk.inputs else []

        for to in (read, symbolic, hard):
            says = [f"{option} would overwrite", to.name, "name another file"]
            desk.refuses(desk.command(command, *given, option, to), MISUSE, says)


def read_by(command: str, desk: Desk) -> list[Path]:
    """The files a command reads."""
    return {
        "inspect": [desk.model],
        "optimize": [desk.model, desk.inputs],
        "bench": [desk.model, desk.inputs],
        "compare": [desk.model, desk.package, desk.inputs],
        "run": [desk.package, desk.inputs],
        "explain": [desk.package],
    }[command]


@pytest.mark.guards(
    "a result over a file the command reads (itself, by a link, by a hard link), over another result, "
    "over the tuning database"
)
def test_two_results_are_not_written_into_one_file(desk: Desk) -> None:
    one = desk.folder / "one"

    desk.refuses(
        desk.command("optimize", "-o", one, "--json", one), MISUSE, ["--json would overwrite", "what --output is"]
    )
    desk.refuses(
        desk.command("run", "--profile", one, "--save-outputs", desk.folder / "results" / ".." / "one"),
        MISUSE,
        ["--profile would overwrite", "what --save-outputs is"],
    )


def test_a_result_is_not_written_over_one_of_many_models(desk: Desk) -> None:
    command = ["optimize-all", desk.model.parent, "-o", desk.folder / "packages", "--json", desk.model]
    desk.refuses(command, MISUSE, ["--json would overwrite", desk.model.name])


@pytest.mark.guards(
    "a result over a file the command reads (itself, by a link, by a hard link), over another result, "
    "over the tuning database"
)
def test_a_result_is_not_written_over_the_tuning_database(desk: Desk) -> None:
    database = desk.folder / "tuning.sqlite3"
    database.write_bytes(b"")

    desk.refuses(desk.command("optimize", "--tuning-db", database, "-o", database), MISUSE, ["would overwrite"])
    for command in (
        ["measure", desk.model],
        ["resolve", desk.model],
        ["frontier", desk.model, "-o", desk.folder / "f"],
    ):
        desk.refuses([*command, "--tuning-db", database, "--json", database], MISUSE, ["--json would overwrite"])
    inside = ["frontier", desk.model, "-o", desk.folder, "--json", desk.folder / "max-error-0.001.collage"]
    desk.refuses(inside, MISUSE, ["--json may not be in", "frontier.json"])
    desk.refuses(["db", "export", "--tuning-db", database, "-o", database], MISUSE, ["would overwrite"])
    desk.refuses(["db", "stats", "--tuning-db", database, "--json", database], MISUSE, ["would overwrite"])


def test_a_folder_as_tuning_database_is_one_message(desk: Desk) -> None:
    desk.refuses(["db", "stats", "--tuning-db", desk.folder], FAILURE, ["cannot use the tuning database", "desk'"])


def test_several_models_are_misuse(desk: Desk) -> None:
    desk.refuses(desk.command("bench", desk.free), MISUSE, ["bench compares contenders on one model, not 2"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"toolchains": "tvm"}, "no toolchain 'tvm' is installed"),
        ({"toolchains": ["referense"]}, r"did you mean 'reference'\?"),
        ({"toolchains": ["reference("]}, r"'reference\(' is not a target"),
        ({"toolchains": []}, "names none"),
        ({"exclude": ["tvm"]}, "no toolchain 'tvm' is installed"),
        ({"reference": "tvm"}, "no toolchain 'tvm' is installed"),
        ({"preset": "fast"}, "no preset 'fast'; choose one of quick, default, extensive"),
        ({"threads": 0}, "--threads is at least 1, not 0"),
        ({"budget_s": math.nan}, "--budget is a time longer than 0 s"),
        ({"max_error": math.nan}, "--max-error is a fraction of an output's scale"),
        ({"rtol": math.nan}, "--rtol is a fraction of a tensor's scale"),
        ({"input_shapes": {"z": (2, 3)}}, "'z': the model has no such input"),
        ({"input_shapes": {"x": (-2, 3)}}, "'x': .* negative dimension"),
        ({"inputs": Path("gone.npz")}, "'gone.npz': .*No such file"),
        ({"inputs": {"x": [[1, 2], [3]]}}, "'x': it cannot be read as an array"),
    ],
)
def test_in_python_it_is_one_error(options: Mapping[str, Any], message: str, desk: Desk) -> None:
    with pytest.raises(UsageError, match=message):
        collage.optimize(desk.model, **{"toolchains": "reference", "tuning_db": "memory:", **options})


@pytest.mark.parametrize("name", ["gone.onnx", "results"])
def test_a_file_that_cannot_be_read_is_one_error_in_python(name: str, desk: Desk) -> None:
    with pytest.raises(ModelError, match=name):
        collage.optimize(desk.folder / name, toolchains="reference", tuning_db="memory:")


@pytest.mark.guards(
    "a result in a missing folder, over a folder, under too long a name, in a folder nobody may write to"
)
def test_a_folder_nobody_may_write_to_is_one_message(desk: Desk) -> None:
    before = contents(desk.folder)
    desk.folder.chmod(0o555)
    try:
        done = run_python(ORDINARY + COMMAND, *desk.command("optimize", "-o", desk.folder / "new.collage"))
    finally:
        desk.folder.chmod(0o755)

    assert done.returncode == MISUSE
    assert f"the directory '{desk.folder}' is not writable" in the_message(done.stderr)
    assert contents(desk.folder) == before
