"""Read untrusted NPZ files."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import psutil

from collage_core.errors import FeedError
from collage_core.ir.io.special_files import why_no_file

_DEFLATED: Final = 1032
"""Maximum expansion factor of deflated data (zlib's manual, "Maximum Compression Factor")."""


def read_arrays(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Read every array of an NPZ file.

    Sizes declared in the file are validated first: nothing is allocated beyond the data that the file holds.

    Raises:
        FeedError: If it cannot be read, is no NPZ file of plain arrays, or holds more than the machine's memory.
    """
    if reason := why_no_file(path):
        raise _no_npz(path, reason)
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if any(member.file_size > _most_held(member) for member in members):
                raise _no_npz(path, "it holds less than it says")
            if sum(member.file_size for member in members) > psutil.virtual_memory().total:
                raise FeedError(str(path), "its arrays take more than this machine's memory")
            return {member.filename.removesuffix(".npy"): _array(archive, member, path) for member in members}
    except OSError as error:
        raise _no_npz(path, error.strerror or str(error)) from error
    except (EOFError, NotImplementedError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        # RuntimeError: encrypted. NumPy's own words would advise to unpickle what nobody knows
        raise _no_npz(path, "write one with numpy.savez") from error


def _most_held(member: zipfile.ZipInfo) -> float:
    """Return the maximum number of bytes that an entry can have once it is inflated."""
    return {
        zipfile.ZIP_STORED: member.compress_size,
        zipfile.ZIP_DEFLATED: member.compress_size * _DEFLATED,
    }.get(member.compress_type, math.inf)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> np.ndarray[Any, Any]:
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(stream)
        held = member.file_size - stream.tell()
    if dtype.hasobject:
        raise _no_npz(path, f"{member.filename!r} holds Python objects, which are never unpickled")
    if math.prod(shape) * dtype.itemsize != held:
        raise _no_npz(path, f"{member.filename!r} is {dtype} of shape {shape}, and {held} bytes are there")
    with archive.open(member) as stream:
        array: np.ndarray[Any, Any] = np.lib.format.read_array(stream, allow_pickle=False)
    return array


def _no_npz(path: Path, why: str) -> FeedError:
    return FeedError(str(path), f"it is not an NPZ file of plain arrays: {why}")
