"""Read and write ZIP archives of uncompressed, aligned entries, which a reader maps instead of copying.

Any ZIP tool opens them. Alignment is by padding in the local header's extra field, as Android's zipalign does
(header id 0xD935; https://android.googlesource.com/platform/tools/apksig/, `ApkSigner`'s alignment extra field).
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from collage.errors import NotAPackageError, PackageDamagedError, PackageError
from collage.runtime.package.manifest import Entry, is_safe_name
from collage_core.ir.io.replacement import Replacement
from collage_core.ir.io.special_files import why_no_file

ALIGNMENT_BYTES = 64

_ALIGNMENT_EXTRA = 0xD935
_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_LOCAL_MAGIC = b"PK\x03\x04"
_ZIP64_EXTRA_BYTES = 20
_NO_PACKAGE = "it is not a Collage package; `collage optimize` makes one of an ONNX model"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest a ZIP can say: equal content gives equal bytes


class ArchiveWriter:
    """Writes an archive that appears under its name only when it is complete.

    Use as a context manager; leaving it without an exception moves the archive into place.

    Attributes:
        entries: Size and checksum of each added entry, by name.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.entries: dict[str, Entry] = {}

    def __enter__(self) -> ArchiveWriter:
        self._file = Replacement(self._path)
        self._archive = zipfile.ZipFile(self._file.stream, "w", zipfile.ZIP_STORED)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._archive.close()
                self._file.finish()
                self._file.put_in_place()
        finally:
            # after a failure, of a full disk above all, closing fails too, and says nothing new
            with contextlib.suppress(OSError, ValueError):
                self._archive.close()
            self._file.discard()

    def add(self, name: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """Add an entry.

        Args:
            name: Its name.
            data: Its content.
            sha256: SHA-256 of that, where it is known.

        Raises:
            PackageError: If the name is not safe to extract.
        """
        if not is_safe_name(name) or name in self.entries:
            raise PackageError(str(self._path), f"{name!r} cannot be the name of an entry")
        view = memoryview(data).cast("B")
        info = zipfile.ZipInfo(name, _EPOCH)
        info.external_attr = 0o644 << 16
        header = self._file.stream.tell() + _LOCAL_HEADER.size + len(name.encode()) + _ZIP64_EXTRA_BYTES
        padding = -(header + 6) % ALIGNMENT_BYTES
        info.extra = struct.pack("<HHH", _ALIGNMENT_EXTRA, 2 + padding, ALIGNMENT_BYTES) + bytes(padding)
        with self._archive.open(info, "w", force_zip64=True) as stream:  # one header size, whatever the data's
            stream.write(view)
        self.entries[name] = Entry(size=len(view), sha256=sha256 or hashlib.sha256(view).hexdigest())


class Archive:
    """A read-only mapping of an archive; entries are read in place.

    The file may be replaced while it is open: the mapping keeps the opened content.

    Args:
        path: The file.

    Raises:
        PackageError: If it cannot be opened.
        NotAPackageError: If it is not a ZIP archive.
        PackageDamagedError: If it is truncated, or has a layout that the package writer never produces.
    """

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._checked: set[str] = set()
        if reason := why_no_file(path):
            raise NotAPackageError(self.path, reason)
        try:
            with path.open("rb") as stream:
                if os.fstat(stream.fileno()).st_size == 0:
                    raise NotAPackageError(self.path, f"the file is empty; {_NO_PACKAGE}")
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
                self._places = self._index(stream)
        except OSError as error:
            raise PackageError(self.path, error.strerror or str(error)) from error

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    @property
    def content(self) -> memoryview:
        """The whole file."""
        return memoryview(self._map)

    def raw(self, name: str) -> memoryview:
        """Return an entry's bytes without checking them, as a view of the file.

        Raises:
            PackageDamagedError: If there is no such entry.
        """
        if name not in self._places:
            raise self._damaged(f"it has no entry {name!r}")
        offset, size = self._places[name]
        return memoryview(self._map)[offset : offset + size]

    def copy(self, name: str, expected: Mapping[str, Entry]) -> bytes:
        """Return a copy of an entry; what is checked is the copy, which nobody can change afterwards.

        Raises:
            PackageDamagedError: As `read`.
        """
        data = bytes(self.raw(name))
        self._check(name, data, expected)
        return data

    def intact(self, name: str, most_bytes: int) -> bytes:
        """Return a copy of an entry that has no other checksum, checked by the archive's own CRC.

        Args:
            name: Name of the entry.
            most_bytes: Size beyond which nobody would read it.

        Raises:
            PackageDamagedError: If it is missing, damaged or larger.
        """
        view = self.raw(name)
        if len(view) > most_bytes:
            raise self._damaged(f"entry {name!r} has {len(view)} bytes, more than the {most_bytes} any package has")
        data = bytes(view)
        if zlib.crc32(data) != self._crcs[name]:
            raise self._damaged(f"entry {name!r} is damaged; get the file again")
        return data

    def read(self, name: str, expected: Mapping[str, Entry]) -> memoryview:
        """Return an entry whose checksum was verified, as a view of the file.

        Args:
            name: Name of the entry.
            expected: Sizes and checksums by name, from the manifest.

        Raises:
            PackageDamagedError: If it is missing, not in the manifest, or does not match the manifest.
        """
        view = self.raw(name)
        if name not in self._checked:
            self._check(name, view, expected)
            self._checked.add(name)
        return view

    def _check(self, name: str, data: bytes | memoryview, expected: Mapping[str, Entry]) -> None:
        if name not in expected:
            raise self._damaged(f"its manifest does not know the entry {name!r}")
        entry = expected[name]
        if len(data) != entry.size:
            raise self._damaged(f"entry {name!r} has {len(data)} bytes, its manifest says {entry.size}")
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise self._damaged(f"the checksum of entry {name!r} does not match; it was altered or damaged")

    def _index(self, stream: BinaryIO) -> dict[str, tuple[int, int]]:
        """Return offset and size of every entry, read from the mapped file.

        The path may refer to another file by now. Nothing is ever inflated, so an entry cannot grow beyond the file;
        entries still to be rejected are those that point outside the file, overlap, or have names that would escape a
        folder.
        """
        try:
            with zipfile.ZipFile(stream) as archive:
                infos = archive.infolist()
                end = archive.start_dir
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error) as error:
            if self._map[:4] == _LOCAL_MAGIC:
                raise self._damaged(f"it is truncated or damaged ({error}); get the file again") from error
            raise NotAPackageError(self.path, _NO_PACKAGE) from error
        self._crcs = {info.orig_filename: info.CRC for info in infos}
        places: dict[str, tuple[int, int]] = {}
        free = 0
        for info in sorted(infos, key=lambda info: info.header_offset):
            name = info.orig_filename
            if not is_safe_name(name):
                raise self._damaged(f"it has an entry named {name[:200]!r}, which no package has")
            if name in places:
                raise self._damaged(f"it has two entries named {name!r}, and tools differ in which they take")
            if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
                raise self._damaged(f"entry {name!r} is a link or another special file; packages have plain ones")
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1 or info.compress_size != info.file_size:
                raise self._damaged(f"entry {name!r} is compressed or encrypted; packages store entries as they are")
            offset = self._data_offset(info)
            if info.header_offset < free or offset + info.file_size > end:
                raise self._damaged(f"entry {name!r} overlaps another or ends outside the file")
            free = offset + info.file_size
            places[name] = (offset, info.file_size)
        return places

    def _data_offset(self, info: zipfile.ZipInfo) -> int:
        start = info.header_offset
        header = self._map[start : start + _LOCAL_HEADER.size] if start >= 0 else b""
        if len(header) < _LOCAL_HEADER.size or header[:4] != _LOCAL_MAGIC:
            raise self._damaged(f"entry {info.orig_filename!r} has no header")
        *_, name_bytes, extra_bytes = _LOCAL_HEADER.unpack(header)
        return start + _LOCAL_HEADER.size + int(name_bytes) + int(extra_bytes)

    def _damaged(self, reason: str) -> PackageDamagedError:
        return PackageDamagedError(self.path, reason)
