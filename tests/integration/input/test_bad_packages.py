"""Files given as packages that are none: every command that takes one says so in one message, and touches nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import collage
from collage_core.errors import CollageError
from tests.integration.input.bad_models import X, archive, model, node
from tests.integration.input.refusals import FAILURE, MISUSE, Desk

pytestmark = pytest.mark.usefixtures("once", "silent")

EVERY_COMMAND = ("run", "explain", "compare", "bench package")
NO_PACKAGE = "it is not a Collage package; `collage optimize` makes one of an ONNX model"


def bytes_of(content: Callable[[Desk], bytes]) -> Callable[[Desk], Path]:
    def make(desk: Desk) -> Path:
        (desk.folder / "bad.collage").write_bytes(content(desk))
        return desk.folder / "bad.collage"

    return make


def a_folder(desk: Desk) -> Path:
    (desk.folder / "bad.collage").mkdir()
    return desk.folder / "bad.collage"


def an_npz(desk: Desk) -> Path:
    np.savez(desk.folder / "bad", x=np.ones(2))
    return (desk.folder / "bad.npz").rename(desk.folder / "bad.collage")


ROWS: dict[str, tuple[Callable[[Desk], Path], int, Sequence[str]]] = {
    "missing": (lambda desk: desk.folder / "gone.collage", MISUSE, ["gone.collage' does not exist"]),
    "a folder": (a_folder, MISUSE, ["bad.collage' is a directory"]),
    "empty": (bytes_of(lambda desk: b""), FAILURE, ["bad.collage'", "the file is empty", NO_PACKAGE]),
    "text": (bytes_of(lambda desk: b"hello\n"), FAILURE, ["bad.collage'", NO_PACKAGE]),
    "a model": (bytes_of(lambda desk: desk.model.read_bytes()), FAILURE, ["bad.collage'", NO_PACKAGE]),
    "arrays": (an_npz, FAILURE, ["bad.collage'", "it has no manifest.json, so it is no Collage package"]),
    "another archive": (bytes_of(lambda desk: archive("a")), FAILURE, ["bad.collage'", "no manifest.json"]),
    "cut off": (bytes_of(lambda desk: desk.package.read_bytes()[:-50]), FAILURE, ["bad.collage'", "truncated or"]),
}


@pytest.mark.guards(
    "given as a package: nothing, a folder, text, a model, another archive, half a package, a package of another model",
    "one message that names the file and says how packages are made",
    area="input",
)
@pytest.mark.parametrize("name", ROWS)
def test_what_is_no_package_is_one_message(name: str, desk: Desk) -> None:
    make, status, says = ROWS[name]
    bad = make(desk)

    for command in EVERY_COMMAND:
        desk.refuses(desk.command(command, package=bad), status, says)


@pytest.mark.parametrize("name", ["missing", "a folder", "empty", "a model", "cut off"])
def test_loading_it_raises_one_error_that_names_it(name: str, desk: Desk) -> None:
    path = ROWS[name][0](desk)

    with pytest.raises(CollageError, match=path.name):
        collage.load(path)


@pytest.mark.guards(
    "a file that is no ONNX model: empty, text, JSON or a web page under another name, a Git LFS pointer,"
    " a pickle, a picture, HDF5, TensorFlow Lite, a NumPy array, a ZIP archive, a PyTorch file, a Collage"
    " package, noise; text forms that are damaged"
)
def test_a_package_given_as_a_model_says_what_it_is(desk: Desk) -> None:
    says = ["model.collage'", "it is a Collage package; `collage run` and `explain` take it"]

    for command in ("inspect", "optimize", "compare"):
        desk.refuses(desk.command(command, model=desk.package), FAILURE, says)


def test_a_package_under_a_models_name_says_so_to_bench(desk: Desk) -> None:
    named = desk.package.rename(desk.folder / "other.onnx")

    desk.refuses(desk.command("bench", model=named), FAILURE, ["other.onnx'", "`bench` if its name ends in .collage"])


@pytest.mark.guards(
    "given as a package: nothing, a folder, text, a model, another archive, half a package, a package of another model"
)
@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            model(node("Neg", "x", "y"), inputs=[X]),
            ["it has the inputs ['x', 'n'], and the model ['x']"],
        ),
        (model(node("Neg", "x", "y")), ["they do not have the same values"]),
    ],
    ids=["other inputs", "other outputs"],
)
def test_a_package_of_another_model_is_misuse(other: onnx.ModelProto, says: Sequence[str], desk: Desk) -> None:
    onnx.save(other, desk.folder / "other.onnx")
    message = ["model.collage was not made from ", "other.onnx", *says]

    desk.refuses(desk.command("compare", model=desk.folder / "other.onnx"), MISUSE, message)
