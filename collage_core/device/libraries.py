"""Which of NVIDIA's libraries this process has loaded, and from where.

Asked in a toolchain's worker once it has said what it offers: by then its libraries are there; and while kernels of a
package are loaded.
"""

from __future__ import annotations

import dataclasses
import filecmp
import os
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

FAMILIES: Final[Mapping[str, str]] = MappingProxyType(
    {"cublas": "cuBLAS", "cudart": "CUDA runtime", "cudnn": "cuDNN", "nvinfer": "TensorRT"}
)
"""What people call the libraries whose names begin so, behind `lib`. Of the driver's own there is always one."""

_NAME = re.compile(rf"^(?P<stem>lib(?P<family>{'|'.join(FAMILIES)})\w*)\.so\.(?P<major>\d+)(\.\d+)*$")


@dataclasses.dataclass(frozen=True, slots=True)
class LibraryFile:
    """A shared library of NVIDIA's.

    Attributes:
        path: Its file.
        family: What it belongs to, in people's words: `"cuDNN"` also for `libcudnn_ops.so.9`.
        stem: Name up to the version: `"libcudnn_ops"`.
        major: Version in its name; programs ask for it by both.
    """

    path: str
    family: str
    stem: str
    major: str

    @property
    def name(self) -> str:
        """By which programs ask for it: `"libcudnn_ops.so.9"`."""
        return f"{self.stem}.so.{self.major}"

    def serves_for(self, other: LibraryFile) -> bool:
        """Whether it is no matter which of two files serves, as of copies."""
        if self.major != other.major:
            return False
        try:
            return os.path.samefile(self.path, other.path) or filecmp.cmp(self.path, other.path, shallow=False)
        except OSError:
            return self.path == other.path

    @classmethod
    def at(cls, path: str) -> LibraryFile | None:
        """The library in a file, by the file's name; None if it is none of these.

        Those that a wheel has renamed, to keep them to itself, are none of these: nobody else finds them.

        Examples:
            >>> LibraryFile.at("/usr/lib/libcublasLt.so.13.0.2.14").name
            'libcublasLt.so.13'
            >>> LibraryFile.at("cupy.libs/libcudart-3d6b1f1a.so.13") is None
            True
        """
        match = _NAME.match(Path(path).name)
        if match is None:
            return None
        return cls(path, FAMILIES[match["family"]], match["stem"], match["major"])


def loaded_libraries(maps: Path = Path("/proc/self/maps")) -> tuple[str, ...]:
    """Files of those this process has loaded, in the order of their addresses; none where the system does not tell.

    Args:
        maps: What is mapped into a process, as Linux lists it (proc_pid_maps(5)): the sixth field is the file.
    """
    try:
        lines = maps.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return ()
    fields = (line.split(maxsplit=5) for line in lines)
    paths = dict.fromkeys(each[5] for each in fields if len(each) == 6)
    return tuple(path for path in paths if LibraryFile.at(path) is not None)
