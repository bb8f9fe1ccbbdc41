"""Which shared libraries this process has loaded of which it has room for one, and from where.

Asked in a toolchain's worker once it has said what it offers: by then its libraries are there; and while kernels of a
package are loaded.
"""

from __future__ import annotations

import dataclasses
import filecmp
import os
import re
from collections.abc import Iterable
from pathlib import Path

from collage_core.contract import LibraryFamily


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryFile:
    """A shared library.

    Attributes:
        path: Its file.
        family: What it belongs to.
        stem: Name up to the version: `"libcudnn_ops"`.
        major: Version in its name; programs ask for it by both.
    """

    path: str
    family: LibraryFamily
    stem: str
    major: str

    @property
    def name(self) -> str:
        """Name by which programs load the library: `"libcudnn_ops.so.9"`."""
        return f"{self.stem}.so.{self.major}"

    def serves_for(self, other: LibraryFile) -> bool:
        """Return whether both files are interchangeable: same version, same content."""
        if self.major != other.major:
            return False
        try:
            return os.path.samefile(self.path, other.path) or filecmp.cmp(self.path, other.path, shallow=False)
        except OSError:
            return self.path == other.path


class Libraries:
    """Families of shared libraries, of each of which a process has room for one version.

    Args:
        families: The families.

    Attributes:
        families: The same.

    Examples:
        >>> known = Libraries([LibraryFamily(stem="cublas", title="cuBLAS")])
        >>> known.at("/usr/lib/libcublasLt.so.13.0.2.14").name
        'libcublasLt.so.13'
        >>> known.at("cupy.libs/libcublas-3d6b1f1a.so.13") is None
        True
    """

    def __init__(self, families: Iterable[LibraryFamily]) -> None:
        self.families = tuple(families)
        stems = "|".join(re.escape(family.stem) for family in self.families)
        self._name = re.compile(rf"^(?P<stem>lib(?P<family>{stems})\w*)\.so\.(?P<major>\d+)(\.\d+)*$")
        self._by_stem = {family.stem: family for family in self.families}

    def at(self, path: str) -> LibraryFile | None:
        """Recognise the library in a file, by the file's name; None if it is none of these.

        Those that a wheel has renamed, to keep them to itself, are none of these: nobody else finds them.
        """
        match = self._name.match(os.path.basename(path))
        if match is None or match["family"] not in self._by_stem:
            return None
        return LibraryFile(path, self._by_stem[match["family"]], match["stem"], match["major"])

    def loaded(self, maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
        """List the files of those this process has loaded, by address; none where the system does not tell.

        Args:
            maps: What is mapped into a process, as Linux lists it (proc_pid_maps(5)): the sixth field is the file.
        """
        try:
            lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        except OSError:
            return ()
        fields = (line.split(maxsplit=5) for line in lines)
        paths = dict.fromkeys(each[5] for each in fields if len(each) == 6)
        return tuple(path for path in paths if self.at(path) is not None)
