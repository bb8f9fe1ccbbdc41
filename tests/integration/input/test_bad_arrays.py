"""What a model is run on, as a file and as arrays: what does not fit is one message, what is merely unusual works."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from collage import load
from collage.runtime.session import Session
from collage_core.errors import FeedError
from tests.hardship import COMMAND, run_python
from tests.integration.input.bad_arrays import ROWS, STATUS, N, Row, X
from tests.integration.input.packages import packaged
from tests.integration.input.refusals import MISUSE, Desk, collage, contents, the_message

pytestmark = pytest.mark.usefixtures("once", "silent")


@pytest.mark.guards(
    "`--inputs` that is no NPZ file, holds Python objects, is damaged, or says it holds terabytes",
    "misuse; nothing is unpickled, nothing is allocated that the file does not hold",
    area="input",
)
@pytest.mark.guards(
    "`--inputs` with a wrong, missing or superfluous name, shape, rank, dtype, byte order, or no "
    "elements; in `run`, `optimize`, `bench` and `compare`",
    "misuse, naming the input, what it is and what is needed; close names proposed; nothing is cast",
    area="input",
)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_inputs_that_do_not_fit_are_one_message(row: Row, desk: Desk) -> None:
    given = row.make(desk.folder)

    for command in ("run", "optimize", "bench", "bench package", "compare"):
        desk.refuses(desk.command(command, "--inputs", given), STATUS, row.says)


@pytest.mark.parametrize("command", ["optimize", "bench"])
def test_a_free_dimension_takes_the_shape_of_the_array_which_still_has_to_fit(command: str, desk: Desk) -> None:
    np.savez(desk.folder / "other.npz", x=np.ones((4, 5), np.float32), n=N)
    given = ["--inputs", desk.folder / "other.npz"]

    says = ["input 'x': [4, 5] contradicts the model's [batch,3]"]
    desk.refuses(desk.command(command, *given, model=desk.free), MISUSE, says)
    says = ["'x': it has shape (4, 5), the model needs float32 of shape (2, 3)"]
    desk.refuses(desk.command(command, *given, "--input-shapes", "x:[2,3]", model=desk.free), MISUSE, says)


def test_in_a_process_of_its_own_it_is_one_message_too(desk: Desk) -> None:
    np.savez(desk.folder / "bad.npz", x=X.astype(np.float64), n=N)
    before = contents(desk.folder)

    done = run_python(COMMAND, *desk.command("run", "--inputs", desk.folder / "bad.npz"))

    assert (done.returncode, done.stdout) == (MISUSE, "")
    assert the_message(done.stderr) == "'x': expected float32[2, 3], got float64[2, 3]"
    assert contents(desk.folder) == before


# Arrays, in Python


@pytest.fixture(scope="module", params=["reference", pytest.param("onnxruntime", marks=pytest.mark.plugins)])
def session(request: pytest.FixtureRequest, good: Desk, tmp_path_factory: pytest.TempPathFactory) -> Session:
    path = tmp_path_factory.mktemp("packages") / f"{request.param}.collage"
    packaged(good.model, path, request.param)
    return load(path)


def unaligned(array: Any) -> Any:
    place = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    place[:] = array
    return place


def read_only(array: Any) -> Any:
    array = array.copy()
    array.flags.writeable = False
    return array


class Subclass(np.ndarray[Any, Any]):
    """An array as libraries derive their own."""


WORKS: dict[str, Any] = {
    "Fortran order": np.asfortranarray(X),
    "a transposed view": np.ascontiguousarray(X.T).T,
    "every other column": np.repeat(X, 2, axis=1)[:, ::2],
    "every other row": np.repeat(X, 2, axis=0)[::2],
    "backwards": np.ascontiguousarray(X[::-1, ::-1])[::-1, ::-1],
    "read-only": read_only(X),
    "unaligned": unaligned(X),
    "a subclass": X.view(Subclass),
    "nested lists": X.tolist(),
    "nested tuples": tuple(map(tuple, X.tolist())),
    "rows of arrays": list(X),
    "whole numbers in lists": [[0, 1, 2], [3, 4, 5]],
}


@pytest.mark.guards(
    "`run` with arrays in Fortran order, views, strided, reversed, read-only, unaligned, subclasses, "
    "lists, tuples; NaN and infinities",
    "the same bits as a plain array; the caller's array stays as it is",
    area="input",
)
@pytest.mark.parametrize("name", WORKS)
def test_an_unusual_array_gives_the_same_bits(name: str, session: Session) -> None:
    expected = session.run(None, {"x": X, "n": N})
    session.run(None, {"x": X + 1, "n": N})
    before = np.array(WORKS[name])

    got = session.run(None, {"x": WORKS[name], "n": N})

    assert [array.tobytes() for array in got] == [array.tobytes() for array in expected]
    np.testing.assert_array_equal(np.array(WORKS[name]), before)


def test_a_row_repeated_without_memory_of_its_own_works(session: Session) -> None:
    [y] = session.run(["y"], {"x": np.broadcast_to(X[0], (2, 3)), "n": N})

    np.testing.assert_array_equal(y, session.run(["y"], {"x": np.stack([X[0], X[0]]), "n": N})[0])


@pytest.mark.guards(
    "`run` with arrays in Fortran order, views, strided, reversed, read-only, unaligned, subclasses, "
    "lists, tuples; NaN and infinities"
)
def test_what_is_no_number_goes_through(session: Session) -> None:
    x = X.copy()
    x[0, 0], x[1, 1], x[1, 2] = np.nan, np.inf, -np.inf

    [y] = session.run(["y"], {"x": x, "n": N})

    assert np.isnan(y[0, 0])
    assert (y[1, 1], y[1, 2]) == (-np.inf, np.inf)


REFUSED: dict[str, tuple[Any, str]] = {
    "another extent": (X[:1], r"'x': expected float32\[2, 3\], got float32\[1, 3\]"),
    "what would broadcast": (X[0], r"'x': expected float32\[2, 3\], got float32\[3\]"),
    "a number": (1.0, r"'x': expected float32\[2, 3\], got float32\[\]"),
    "no elements": (X[:0], r"'x': expected float32\[2, 3\], got float32\[0, 3\]"),
    "doubles": (X.astype(np.float64), r"'x': expected float32\[2, 3\], got float64\[2, 3\]"),
    "integers": (X.astype(np.int32), r"'x': expected float32\[2, 3\], got int32\[2, 3\]"),
    "the other byte order": (X.astype(">f4"), r"'x': expected float32\[2, 3\], got >f4\[2, 3\]"),
    "objects": (X.astype(object), r"'x': expected float32\[2, 3\], got object\[2, 3\]"),
    "texts": ([["1", "2", "3"]] * 2, r"'x': expected float32\[2, 3\], got <U1\[2, 3\]"),
    "complex numbers": ([[1j, 0, 0]] * 2, r"'x': expected float32\[2, 3\], got complex128\[2, 3\]"),
    "ragged lists": ([[1, 2], [3]], r"'x': expected float32\[2, 3\], and list cannot be read as one"),
    "nothing": (None, r"'x': expected float32\[2, 3\], got object\[\]"),
    "a dictionary": ({}, r"'x': expected float32\[2, 3\], got object\[\]"),
    "a name": ("x", r"'x': expected float32\[2, 3\], got <U1\[\]"),
}


@pytest.mark.guards(
    "`run` with a wrong name, shape, dtype, byte order, no elements, objects, ragged lists, None, no mapping at all",
    "`FeedError`; the session goes on",
    area="input",
)
@pytest.mark.parametrize("name", REFUSED)
def test_an_array_that_does_not_fit_is_refused_and_the_session_goes_on(name: str, session: Session) -> None:
    value, message = REFUSED[name]
    expected = session.run(None, {"x": X, "n": N})

    with pytest.raises(FeedError, match=message):
        session.run(None, {"x": value, "n": N})

    assert all(map(np.array_equal, session.run_bound(), expected))


@pytest.mark.guards(
    "`run` with a wrong name, shape, dtype, byte order, no elements, objects, ragged lists, None, no mapping at all"
)
@pytest.mark.parametrize(
    ("names", "feeds", "message"),
    [
        (None, {"x": X}, r"'n': no value given for this input \(int64\[2\]\)"),
        (None, {"x": X, "n": N, "z": X}, "'z': the model has no such input; it has x, n$"),
        (None, {"X": X, "n": N}, r"'X': the model has no such input; it has x, n; did you mean 'x'\?"),
        (None, {0: X, "n": N}, "'0': the model has no such input; it has x, n"),
        (None, [X, N], r"'feeds': give a value for each input by its name, \{'x': ..., 'n': ...\}, not a list"),
        (None, X, "'feeds': give a value for each input by its name, .* not a ndarray"),
        (None, None, "'feeds': give a value for each input by its name, .* not a NoneType"),
        (["Y"], {"x": X, "n": N}, r"'Y': the model has no such output; it has y, m; did you mean 'y'\?"),
        ("y", {"x": X, "n": N}, r"'y': give a list of names of outputs, \['y'\], or None for all"),
    ],
)
def test_what_is_named_wrongly_is_refused(names: Any, feeds: Any, message: str, session: Session) -> None:
    with pytest.raises(FeedError, match=message):
        session.run(names, feeds)


HUGE = 1 << 50


@pytest.mark.guards(
    "a huge array (a view of 2^50 rows)", "refused by its shape; never copied or allocated", area="input"
)
@pytest.mark.parametrize(
    "huge",
    [
        np.broadcast_to(np.float32(0), (HUGE,)),
        np.broadcast_to(np.float32(0), (2, 3, HUGE)),
        np.broadcast_to(np.float32(0), (HUGE, 3)),
        np.broadcast_to(np.float64(0), (HUGE, 3)),
    ],
    ids=["long", "deep", "many rows", "of another type"],
)
def test_a_huge_array_is_refused_by_its_shape_and_never_copied(huge: Any, session: Session) -> None:
    tracemalloc.start()
    try:
        for attempt in (
            lambda: session.run(None, {"x": huge, "n": N}),
            lambda: session.profile({"x": huge, "n": N}),
            lambda: session.bind({"x": huge}),
            lambda: session.bind(outputs={"y": huge}),
        ):
            with pytest.raises(FeedError, match=str(HUGE)):
                attempt()
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


BOUND: dict[str, tuple[Any, str]] = {
    "Fortran order": (np.asfortranarray(X), "not C-contiguous"),
    "read-only": (read_only(X), "read-only"),
    "unaligned": (unaligned(X), "not aligned"),
    "another extent": (X[:1].copy(), r"float32\[1, 3\]"),
    "doubles": (X.astype(np.float64), r"float64\[2, 3\]"),
    "the other byte order": (X.astype(">f4"), ">f4"),
    "a list": (X.tolist(), "not list"),
    "nothing": (7, "not int"),
}


@pytest.mark.guards(
    "memory that is bound and cannot be used: not contiguous, read-only, unaligned, of another type, "
    "shared between input and output",
    "refused when it is bound",
    area="input",
)
@pytest.mark.parametrize("name", BOUND)
def test_memory_a_kernel_cannot_use_is_refused_when_it_is_bound(name: str, session: Session) -> None:
    value, message = BOUND[name]

    for side, place in (("inputs", "x"), ("outputs", "y")):
        with pytest.raises(FeedError, match=f"'{place}': bind .*{message}"):
            session.bind(**{side: {place: value}})


@pytest.mark.guards(
    "memory that is bound and cannot be used: not contiguous, read-only, unaligned, of another type, "
    "shared between input and output"
)
def test_names_and_overlaps_are_checked_when_memory_is_bound(session: Session) -> None:
    x = X.copy()

    with pytest.raises(FeedError, match="'z': the model has no such input; it has x, n"):
        session.bind({"z": x})
    with pytest.raises(FeedError, match="'z': the model has no such output; it has y, m"):
        session.bind(outputs={"z": x})
    with pytest.raises(FeedError, match="'y': its array shares memory with that of 'x'"):
        session.bind({"x": x}, {"y": x})


def test_arrays_in_a_file_may_lie_as_they_like(desk: Desk) -> None:
    outputs = {}
    for name, x in {"rows": X, "columns": np.asfortranarray(X), "backwards": X[::-1][::-1]}.items():
        given, wanted = desk.folder / f"{name}.npz", desk.folder / f"{name}-out.npz"
        np.savez_compressed(given, x=x, n=N)
        result = collage("run", desk.package, "--inputs", given, "--save-outputs", wanted)
        assert result.exit_code == 0, result.output
        with np.load(wanted) as saved:
            outputs[name] = {key: saved[key].tobytes() for key in saved.files}

    assert outputs["columns"] == outputs["backwards"] == outputs["rows"]
