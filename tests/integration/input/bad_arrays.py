"""Files of inputs that do not fit a model of x, two by three float32, and n, two int64: one row each."""

from __future__ import annotations

import dataclasses
import io
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.integration.input.refusals import MISUSE

X = np.arange(6, dtype=np.float32).reshape(2, 3)
N = np.array([1, 2])


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """One file.

    Attributes:
        name: What is wrong with it.
        make: Writes it into a folder.
        says: What the message holds.
    """

    name: str
    make: Callable[[Path], Path]
    says: Sequence[str]


def arrays(x: Any = X, n: Any = N, **others: Any) -> Callable[[Path], Path]:
    """An NPZ file; an array that is None is left out."""
    given = {name: array for name, array in {"x": x, "n": n, **others}.items() if array is not None}

    def make(folder: Path) -> Path:
        np.savez(folder / "bad.npz", **given)
        return folder / "bad.npz"

    return make


def file(content: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / "bad.npz").write_bytes(content)
        return folder / "bad.npz"

    return make


def folder(where: Path) -> Path:
    (where / "bad.npz").mkdir()
    return where / "bad.npz"


def saved(save: Callable[..., None], *arrays: Any, **named: Any) -> bytes:
    written = io.BytesIO()
    save(written, *arrays, **named)
    return written.getvalue()


def header(shape: tuple[int, ...], dtype: str = "<f4") -> bytes:
    """What an array of a shape begins with."""
    written = io.BytesIO()
    np.lib.format.write_array_header_1_0(written, {"descr": dtype, "fortran_order": False, "shape": shape})
    return written.getvalue()


def member(data: bytes, *, compressed: bool = False) -> bytes:
    """An NPZ file whose array `x` is these bytes."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED) as out:
        out.writestr("x.npy", data)
    return written.getvalue()


def flipped(data: bytes, start: int, count: int = 8) -> bytes:
    return data[:start] + bytes(byte ^ 0xFF for byte in data[start : start + count]) + data[start + count :]


def as_large_as_it_says(nbytes: int) -> bytes:
    """An archive that says of its array that it has so many bytes, and has few."""
    data = bytearray(member(header((nbytes // 4,)) + bytes(64)))
    size = (len(header((nbytes // 4,))) + nbytes).to_bytes(4, "little")
    directory = data.index(b"PK\x01\x02")
    data[directory + 24 : directory + 28] = size
    data[22:26] = size
    return bytes(data)


NOT_NPZ = "it is not an NPZ file of plain arrays"
SAVEZ = "write one with numpy.savez"

FILES = (
    Row("missing", lambda where: where / "gone.npz", ["--inputs", "gone.npz' does not exist"]),
    Row("a folder", folder, ["--inputs", "bad.npz' is a directory"]),
    Row("empty", file(b""), ["bad.npz'", NOT_NPZ, SAVEZ]),
    Row("text", file(b"1 2 3\n"), ["bad.npz'", NOT_NPZ, SAVEZ]),
    Row("a single array", file(saved(np.save, X)), ["bad.npz'", NOT_NPZ, SAVEZ]),
    Row("cut off", file(saved(np.savez, x=X, n=N)[:-20]), ["bad.npz'", NOT_NPZ, SAVEZ]),
    Row("a ZIP archive of text", file(member(b"hello")), ["bad.npz'", NOT_NPZ]),
    Row("bytes changed", file(flipped(saved(np.savez, x=X, n=N), 180)), ["bad.npz'", NOT_NPZ]),
    Row(
        "compressed bytes changed",
        file(flipped(member(header((999,)) + np.arange(999, dtype=np.float32).tobytes(), compressed=True), 300)),
        ["bad.npz'", NOT_NPZ],
    ),
    Row("Python objects", arrays(x=np.array([{}], dtype=object)), [NOT_NPZ, "'x.npy' holds Python objects"]),
    Row("a shape of terabytes", file(member(header((1 << 42,)) + bytes(64))), [NOT_NPZ, "'x.npy'", "64 bytes are"]),
    Row("a shape below zero", file(member(header((-1,)) + bytes(64))), [NOT_NPZ]),
    Row("an entry of gigabytes", file(as_large_as_it_says(1 << 31)), [NOT_NPZ]),
)

VALUES = (
    Row("an input missing", arrays(n=None), ["'n': no value", "int64"]),
    Row("none", file(saved(np.savez)), ["'x': no value", "float32"]),
    Row("an input too many", arrays(z=X), ["'z': the model has no such input; it has x, n"]),
    Row("another case", arrays(x=None, X=X), ["'X': the model has no such input", "did you mean 'x'?"]),
    Row("names of savez", file(saved(np.savez, X, N)), ["'arr_0': the model has no such input; it has x, n"]),
    Row("another extent", arrays(x=np.ones((3, 3), np.float32)), ["'x': ", "3, 3", "2, 3"]),
    Row("another order of axes", arrays(x=np.ones((3, 2), np.float32)), ["'x': ", "3, 2", "2, 3"]),
    Row("another rank", arrays(x=np.ones((1, 2, 3), np.float32)), ["'x': ", "1, 2, 3", "2, 3"]),
    Row("as many elements", arrays(x=np.ones(6, np.float32)), ["'x': ", "6", "2, 3"]),
    Row("a number", arrays(x=np.float32(1)), ["'x': ", "2, 3"]),
    Row("no elements", arrays(x=np.ones((0, 3), np.float32)), ["'x': ", "0, 3", "2, 3"]),
    Row("doubles", arrays(x=np.ones((2, 3))), ["'x': ", "float64", "float32"]),
    Row("halves", arrays(x=np.ones((2, 3), np.float16)), ["'x': ", "float16", "float32"]),
    Row("integers for numbers", arrays(x=np.ones((2, 3), np.int32)), ["'x': ", "int32", "float32"]),
    Row("numbers for integers", arrays(n=np.ones(2)), ["'n': ", "float64", "int64"]),
    Row("short integers", arrays(n=np.ones(2, np.int32)), ["'n': ", "int32", "int64"]),
    Row("truths", arrays(x=np.ones((2, 3), bool)), ["'x': ", "bool", "float32"]),
    Row("texts", arrays(x=np.full((2, 3), "1")), ["'x': ", "<U1", "float32"]),
    Row("complex numbers", arrays(x=np.ones((2, 3), np.complex64)), ["'x': ", "complex64", "float32"]),
    Row("the other byte order", arrays(x=np.ones((2, 3), ">f4")), ["'x': ", ">f4", "float32"]),
    Row("a record", arrays(x=np.ones((2, 3), [("a", "f4")])), ["'x': ", "float32"]),
)

ROWS = (*FILES, *VALUES)
STATUS = MISUSE
