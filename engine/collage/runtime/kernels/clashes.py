"""Two of one library in the process that runs a package.

A search keeps toolchains apart whose libraries clash on its machine. A package is run elsewhere, later, and by programs
that have libraries of their own; what was measured apart does not hold there (`setup/library_clashes.py` says why).
"""

from __future__ import annotations

from collections.abc import Callable

from collage.devices.libraries import Libraries
from collage.errors import LibraryClashError


class LibraryWatch:
    """Whose kernels have brought which library into this process, from the time on at which this is made.

    Args:
        libraries: Those of which there is room for one.
        loaded: Gives the files of all that are there; what this process has mapped if None.
    """

    def __init__(self, libraries: Libraries, loaded: Callable[[], tuple[str, ...]] | None = None) -> None:
        self._libraries = libraries
        self._loaded = loaded or libraries.loaded
        self._owners: dict[str, str] = dict.fromkeys(self._loaded(), "")
        self._seen: list[str] = []

    def look(self, toolchain: str) -> None:
        """Record newly loaded libraries, but only when the toolchain differs from that of the last call.

        Listing a process's mapped files takes about a millisecond, which is long compared with loading one kernel of a
        hundred.

        Args:
            toolchain: Toolchain whose kernel was loaded.

        Raises:
            LibraryClashError: If two versions of a library are loaded now.
        """
        if toolchain not in self._seen:
            self._seen.append(toolchain)
            self._note(toolchain)

    def look_again(self) -> None:
        """Check for clashes again once all kernels are loaded: a library may load parts on first use.

        The new libraries cannot be attributed unless there is only one toolchain; they are attributed to the last one.

        Raises:
            LibraryClashError: As for `look`.
        """
        if self._seen:
            self._note(self._seen[-1])

    def _note(self, toolchain: str) -> None:
        for path in self._loaded():
            if path not in self._owners:
                self._compare(path, toolchain)
                self._owners[path] = toolchain

    def _compare(self, path: str, toolchain: str) -> None:
        mine = self._libraries.at(path)
        if mine is None:
            return
        for other, owner in self._owners.items():
            theirs = self._libraries.at(other)
            if owner == toolchain or theirs is None or theirs.stem != mine.stem or mine.serves_for(theirs):
                continue
            # what a program has loaded for itself is its own matter, unless both go by the same name: then what
            # either asks for is given from whichever came first
            if owner or theirs.name == mine.name:
                raise LibraryClashError(mine.family.title, (owner, toolchain), (other, path))
