"""Identify a file that was given as an ONNX model but is none."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_LOOKED_AT = 512

_BEGINNINGS: Final[Mapping[bytes, str]] = {
    b"version https://git-lfs": "a pointer of Git LFS in place of the file; fetch that with `git lfs pull`",
    b"<!doctype html": "a web page; download the file itself",
    b"<html": "a web page; download the file itself",
    b"\x89hdf\r\n": "an HDF5 file, as Keras writes; convert it with tf2onnx",
    b"\x93numpy": "a NumPy array",
    b"\x89png": "a picture",
    b"\xff\xd8\xff": "a picture",
    b"\x80\x02": "a pickle, which is never opened; export the model as ONNX",
    b"\x80\x03": "a pickle, which is never opened; export the model as ONNX",
    b"\x80\x04": "a pickle, which is never opened; export the model as ONNX",
    b"\x80\x05": "a pickle, which is never opened; export the model as ONNX",
}
"""Description of a file by its first bytes, in lower case."""

_TFLITE = b"TFL3"  # from the fifth byte on: the file identifier of a FlatBuffer


def guessed(path: Path) -> str:
    """Guess from a file's first bytes what it is and what to do instead; empty if unknown."""
    try:
        with path.open("rb") as stream:
            start = stream.read(_LOOKED_AT)
    except OSError:
        return ""
    if not start:
        return "the file is empty"
    for beginning, what in _BEGINNINGS.items():
        if start.lower().startswith(beginning):
            return f"it is {what}"
    if start[4:8] == _TFLITE:
        return "it is a TensorFlow Lite model; convert it with tf2onnx"
    if start.startswith(b"PK"):
        return f"it is {_archive(path)}"
    if _is_text(start):
        return "it is text; a model written as text has a name that ends in .textproto, .onnxtxt or .json"
    return ""


def _archive(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return "a damaged ZIP archive"
    if {"manifest.json", "model.onnx"} <= names:
        return "a Collage package; `collage run` and `explain` take it, and `bench` if its name ends in .collage"
    if any(name.endswith("data.pkl") for name in names):
        return "a PyTorch file; export the model with torch.onnx.export"
    return "a ZIP archive; unpack it and give the model in it"


def _is_text(start: bytes) -> bool:
    # bytes below 32 that are no white space are tags and lengths of a protobuf
    return all(byte >= 32 or byte in b"\t\n\r\f" for byte in start) and b"\x7f" not in start
