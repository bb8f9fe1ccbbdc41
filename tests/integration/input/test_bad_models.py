"""Models that cannot be used: every command that takes one says so in one message, and touches nothing."""

from __future__ import annotations

import onnx_ir
import pytest

from collage.prepare.steps import check, prepare
from collage_core.errors import InvalidModelError, ModelError
from collage_core.ir.io.model_io import load_model
from tests.hardship import COMMAND, ORDINARY, run_python
from tests.integration.input.bad_models import EVERY_COMMAND, NEXT, OF_THE_FILE, PLUS_LATER, ROWS, Row, model, node
from tests.integration.input.refusals import FAILURE, MISUSE, Desk, contents, the_message

pytestmark = pytest.mark.usefixtures("once", "silent")


@pytest.mark.guards(
    "a model that is missing, a folder, a link to nothing, or not readable",
    "misuse (status 2), one message; nothing is written",
    area="input",
    cases=("missing",),
)
@pytest.mark.guards(
    "a file that is no ONNX model: empty, text, JSON or a web page under another name, a Git LFS pointer,"
    " a pickle, a picture, HDF5, TensorFlow Lite, a NumPy array, a ZIP archive, a PyTorch file, a Collage"
    " package, noise; text forms that are damaged",
    "status 1; the message says what the file is and what to do; `inspect`, `optimize`, `bench` and `compare` alike",
    area="input",
)
@pytest.mark.guards(
    "external data missing, cut off, in a folder, behind a link or path that leaves the model's folder; "
    "an offset or length that is negative, no number, beyond the end or below the shape's; no location",
    "refused, naming weight, file and what is wrong with it",
    area="input",
    cases=("external data missing",),
)
@pytest.mark.guards(
    "weights and constants that hold fewer or more elements than their shape, have a negative extent, no "
    "element type, or one nobody knows",
    "refused by name when the model is read",
    area="input",
    cases=("a weight of fewer bytes than its shape has", "a constant of no type"),
)
@pytest.mark.guards(
    "nodes in a circle, in a branch too",
    "refused; the message goes round the circle",
    area="input",
    cases=("nodes in a circle", "a circle in a branch"),
)
@pytest.mark.guards(
    "a value given twice (by two nodes, an input, a weight); two inputs or weights of one name; an input "
    "without a type; no outputs; values nothing gives",
    "refused by name, with both givers",
    area="input",
    cases=("a value given twice",),
)
@pytest.mark.guards(
    "no opset, opset 0, an opset or IR version to come",
    "refused; what is newer names both versions",
    area="input",
    cases=("no opset", "an IR to come"),
)
@pytest.mark.guards(
    "a free dimension or rank",
    "misuse; the message names the input, the dimension and the flag to give: `--input-shapes x:[N,3]`",
    area="input",
    cases=("a free dimension",),
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_model_that_cannot_be_used_is_one_message(row: Row, desk: Desk) -> None:
    bad = row.make(desk.folder)
    named = [bad.name] if row in OF_THE_FILE else []

    for command in row.commands:
        desk.refuses(desk.command(command, model=bad), row.status, [*named, *row.says])


@pytest.mark.guards("a model that was cut off, after any byte", "refused", area="input")
def test_no_beginning_of_a_model_is_taken_for_one(desk: Desk) -> None:
    whole, cut = desk.model.read_bytes(), desk.folder / "cut.onnx"

    for size in range(len(whole)):
        cut.write_bytes(whole[:size])
        with pytest.raises(ModelError, match=r"cut off|is empty"):
            check(load_model(cut))


@pytest.mark.guards("a model that was cut off, after any byte")
@pytest.mark.parametrize("part", [0.2, 0.6, 0.95])
def test_a_model_that_was_cut_off_is_one_message(part: float, desk: Desk) -> None:
    data = desk.model.read_bytes()
    (desk.folder / "cut.onnx").write_bytes(data[: int(part * len(data))])

    for command in EVERY_COMMAND:
        desk.refuses(desk.command(command, model=desk.folder / "cut.onnx"), FAILURE, ["cut.onnx", "cut off"])


@pytest.mark.guards("a model in memory whose nodes are out of order", "refused, and left as it is", area="input")
@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ((PLUS_LATER, NEXT, node("Neg", "later", "y")), "nodes go in a circle: 'minus'"),
        ((node("Neg", "a", "y"), node("Exp", "x", "a")), "nodes stand before what they read; sort the graph"),
    ],
    ids=["in a circle", "out of order"],
)
def test_a_model_in_memory_is_not_changed_to_be_used(nodes: tuple[object, ...], message: str) -> None:
    made = onnx_ir.from_proto(model(*nodes))
    before = [each.op_type for each in made.graph]

    with pytest.raises(InvalidModelError, match=message):
        prepare(made)

    assert [each.op_type for each in made.graph] == before


@pytest.mark.guards("a model that is missing, a folder, a link to nothing, or not readable")
def test_a_file_nobody_may_read_is_one_message(desk: Desk) -> None:
    desk.model.chmod(0)
    before = contents(desk.folder / "results")
    try:
        done = run_python(ORDINARY + COMMAND, *desk.command("inspect"))
    finally:
        desk.model.chmod(0o644)

    assert done.returncode == MISUSE
    assert "model.onnx' is not readable" in the_message(done.stderr)
    assert contents(desk.folder / "results") == before


def test_in_a_process_of_its_own_it_is_one_message_too(desk: Desk) -> None:
    bad = desk.folder / "bad.onnx"
    bad.write_text("hello")
    before = contents(desk.folder)

    done = run_python(COMMAND, *desk.command("optimize", model=bad))

    assert (done.returncode, done.stdout) == (FAILURE, "")
    assert the_message(done.stderr).startswith(f"cannot use '{bad}' as an ONNX model: it is text")
    assert contents(desk.folder) == before
